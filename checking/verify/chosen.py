"""The ops under test, and the problems of their kernels that checks take."""

from __future__ import annotations

import os
from collections.abc import Hashable
from functools import cache
from itertools import islice
from pathlib import Path

from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import KernelSku

from ..problems.cases import benched, fills_packs, problems, skus
from ..problems.of_kernels import number_names
from ..problems.pairs import paired_problems
from ..problems.problem import Problem
from ..problems.subject import Subject
from ..problems.turns import with_turns
from ..variables import OPS, PACKAGE, SAMPLE, SPECS
from . import table
from .accesses import SMALL
from .checks import LARGE

_DERIVED = 8  # problems in which features meet, among which one of whole packs is looked for
HERE = Path(__file__).resolve().parents[2] / "specs"


@cache
def subjects() -> tuple[Subject, ...]:
    """The ops under test."""
    chosen = os.environ.get(OPS, "").split()
    loaded = load_folder(Path(os.environ.get(SPECS) or HERE), chosen)
    package = os.environ.get(PACKAGE, "baracuda.generated")
    return tuple(Subject(subject, loaded, package) for op, subject in loaded.items() if not chosen or op in chosen)


@cache
def problems_of(op: str, symbol: str) -> tuple[Problem, ...]:
    subject = next(s for s in subjects() if s.spec.op == op)
    sku = next(s for s in skus(subject) if s.symbol == symbol)
    return tuple(problems(subject, sku))


def smallest(sku: KernelSku) -> Problem:
    """The smallest problem of a SKU with several rows, cells or samples, or at least without empty arrays."""
    return min(problems_of(sku.op, sku.symbol), key=lambda p: (not p.several, _has_empty(p), p.size))


def _has_empty(problem: Problem) -> bool:
    return any(0 in problem.shape_of(name) for name in problem.arguments)


def middling(sku: KernelSku) -> Problem:
    """The largest of the small problems of a SKU."""
    small = [p for p in problems_of(sku.op, sku.symbol) if p.size <= SMALL]
    return max(small, key=lambda p: p.size, default=smallest(sku))


def long_reductions(sku: KernelSku) -> list[Problem]:
    """Of a map that reduces terms, the problems that are not small, but quickly drawn."""
    reduces = bool(getattr(subject_of(sku).plan, "SUMMED", ()))
    return [p for p in problems_of(sku.op, sku.symbol) if reduces and SMALL < p.size <= LARGE]


def large(subject: Subject) -> list[Problem]:
    """Of each element type the benchmarked problem that most kernels may serve; in a sampled run one of all."""
    of_each = [max(benched(subject, dtype), key=_kernels_and_arguments) for dtype in subject.spec.dtypes]
    return of_each if SAMPLE not in os.environ else [max(of_each, key=_kernels_and_arguments)]


def _kernels_and_arguments(problem: Problem) -> tuple[int, int, int]:
    return len(problem.plan.skus), len(problem.arguments), problem.size


def of_packs(sku: KernelSku) -> Problem:
    """The smallest problem whose contiguous arrays consist of whole packs, as those that vectors load do."""
    vec, problems = 16 // sku.element.row.bytes, problems_of(sku.op, sku.symbol)
    derived = (problem for problem, _ in paired_problems(subject_of(sku), sku, problems))
    several = (p for p in (*problems, *islice(derived, _DERIVED)) if p.several and fills_packs(p, vec))
    return min(several, key=lambda p: p.size, default=smallest(sku))


def beside_packs(sku: KernelSku) -> Problem:
    """The smallest problem in which packs lie in two rows."""
    vec = 16 // sku.element.row.bytes

    def in_two_rows(shape: tuple[int, ...]) -> bool:
        return len(shape) > 1 and shape[-1] > vec and shape[-1] % vec > 0

    several = (problem for problem in problems_of(sku.op, sku.symbol) if problem.several)
    ragged = (problem for problem in several if any(map(in_two_rows, map(problem.shape_of, problem.arguments))))
    return min(ragged, key=size_of, default=smallest(sku))


def of_each_code(sku: KernelSku) -> list[Problem]:
    """The smallest problem for each code that settings and optional arguments make of a SKU."""
    by_code: dict[Hashable, Problem] = {}
    for problem in sorted(problems_of(sku.op, sku.symbol), key=lambda p: (not p.several, p.size)):
        by_code.setdefault(table.code_of(problem), problem)
    return list(by_code.values())


def most_unlike(problem: Problem) -> Problem:
    """Of kernels by hand the problem of the same SKU whose code has most other settings; of others itself."""
    if not problem.spec.by_hand:
        return problem
    own = _defines(problem)
    return max(of_each_code(problem.plan.sku), key=lambda other: len(_defines(other) - own), default=problem)


def _defines(problem: Problem) -> frozenset[str]:
    return frozenset(define for source in problem.plan.sources() for define in source.defines)


def turning(sku: KernelSku) -> Problem:
    return with_turns(subject_of(sku), sku, problems_of(sku.op, sku.symbol))


def size_of(problem: Problem) -> int:
    return problem.size


def few(sku: KernelSku) -> list[Problem]:
    """For kernels by hand the smallest problem and the one with most arguments; for others all."""
    problems = problems_of(sku.op, sku.symbol)
    if not subject_of(sku).spec.by_hand:
        return list(problems)
    most = max((p for p in problems if p.size <= SMALL), key=lambda p: len(p.arguments), default=smallest(sku))
    return [smallest(sku)] if most == smallest(sku) else [smallest(sku), most]


def narrowest(sku: KernelSku) -> KernelSku:
    """The first SKU of the same op, element, architecture and kind of schedule, for checks that tiles do not affect."""
    alike = (s for s in skus(subject_of(sku)) if (s.element, s.arch) == (sku.element, sku.arch))
    return next(s for s in alike if number_names(s) == number_names(sku))


def subject_of(sku: KernelSku) -> Subject:
    return next(s for s in subjects() if s.spec.op == sku.op)


def twos(problem: Problem) -> int:
    """The number of axes of extent 2, of the array with most."""
    return max(problem.shape_of(name).count(2) for name in problem.arguments)
