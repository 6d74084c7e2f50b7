"""The problems that a SKU is tested on: the spec's cases, those it is selected for, and a few generated ones."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition, fields_of, read_condition
from baracuda.codegen.spec.parts import RangeSpec
from baracuda.codegen.spec.spec import OpSpec
from baracuda.runtime import ElementKind, KernelSku, SpecError, Unsupported
from baracuda.runtime.values import short_repr

from .problem import Problem
from .subject import Subject

Serve = Callable[[Subject, Mapping[str, Any], KernelSku], Problem | None]
_WANTED = 2  # problems a SKU should have; where the spec's cases give it fewer, random ones are added
_TRIES = 1000  # the rarest that any case draws comes every hundred


def refuse_bad_cases(subjects: Iterable[Subject]) -> None:
    """Raise a SpecError with all test and benchmark cases that violate a requirement of their spec."""
    violations = [
        str(subject.loaded.source.error((section, "cases", i), violation))
        for subject in subjects
        for section in ("tests", "bench")
        for i, case in enumerate(getattr(subject.spec, section).cases)
        if (violation := _violation(subject.spec, canonical(subject.values(case))))
    ]
    if violations:
        raise SpecError("\n".join(violations))


def _violation(spec: OpSpec, values: Mapping[str, Any]) -> str:
    """How `values` violate a requirement, or ""."""
    for requirement in spec.require:
        try:
            if evaluate_condition(requirement.that, values):
                continue
            why = ""
        except ConditionError as error:  # of an axis that a shape does not have, say
            why = f" ({error})"
        condition = read_condition(requirement.that, spec.descriptor)
        actual = ", ".join(f"{name}={short_repr(values[name])}" for name in fields_of(condition))
        return f"this case violates a requirement; needs {condition}, got {actual}{why}"
    return ""


def canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def skus_of(subject: Subject) -> list[KernelSku]:
    """Every SKU of the op, importing its plan if need be."""
    return [row.sku for row in subject.plan.kernels()]


def skus(subject: Subject, device: str = "") -> list[KernelSku]:
    """Every SKU of the op, or those that the kind of device can run: "host" or "cuda"."""
    all_skus = skus_of(subject)
    return [sku for sku in all_skus if sku.fits("host") is None] if device == "host" else all_skus


def problems(subject: Subject, sku: KernelSku, limit: int = 1 << 21) -> list[Problem]:
    """The problems for which selection chooses `sku`: from the spec's cases and its tile's edges.

    Every SKU of the row family gets at least one with more than one row, if its tile allows.
    """
    by_descriptor: dict[Any, Problem] = {}

    def add(cases: Iterable[Mapping[str, Any]], serve: Serve | None = None) -> None:
        for case in cases:
            if case.get("dtype", sku.element) == sku.element:
                fields = {k: v for k, v in case.items() if k != "dtype"}
                problem = (serve or served)(subject, fields, sku)
                if problem is not None and problem.size <= limit:
                    by_descriptor.setdefault(problem.descriptor, problem)

    add(subject.spec.tests.cases)
    if (edges := Problem.kind_of(subject).edge_cases(subject, sku)) is not None:
        add(edges)
    elif len(by_descriptor) < _WANTED:
        for problem in random_problems(subject, sku, _WANTED - len(by_descriptor), seed=1, limit=1 << 14):
            by_descriptor.setdefault(problem.descriptor, problem)
    if not any(problem.size for problem in by_descriptor.values()):
        own = (case for case in subject.spec.tests.cases[::-1] if case.get("dtype", sku.element) == sku.element)
        serving = [(found.size == 0, case) for case in own if (found := second_choice(subject, case, sku))]
        serving.sort(key=lambda of: of[0])  # those with nothing to compute come last
        add((case for _, case in serving[: _WANTED + 1]), second_choice)
    return list(by_descriptor.values())


def second_choice(subject: Subject, case: Mapping[str, Any], sku: KernelSku) -> Problem | None:
    """The problem of `case` for a kernel that is not its first choice."""
    try:
        layout = Problem.kind_of(subject).only_layout(subject, sku)
        problem = Problem.of(subject, case, sku.element, sku.arch, layout, str(sku.schedule), sku.asked)
    except Unsupported:
        return None
    return problem if can_be_laid_out(problem) else None


def short_problems(subject: Subject, sku: KernelSku) -> Iterator[Problem]:
    """Rows far shorter than the tile, whichever kernel selection gives them to."""
    for case in Problem.kind_of(subject).short_cases(subject, sku):
        if (problem := second_choice(subject, case, sku)) is not None:
            yield problem


def server(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Serve:
    """How problems for `sku` are made: as `bases` were, with it as the first choice or not."""
    return served if any(served(subject, base.case, sku) for base in bases[:1]) else second_choice


def adapted(subject: Subject, sku: KernelSku, bases: Sequence[Problem], limit: int) -> list[Problem]:
    """`bases`, and the spec's other cases with a field of one of them, as far as `sku` then serves them."""
    serve, problems = server(subject, sku, bases), list(bases)
    for case in subject.spec.tests.cases:
        own = {name: value for name, value in case.items() if name != "dtype"}
        single = ({**own, name: base.values[name]} for base in bases for name in subject.spec.descriptor)
        fitting = (changed for changed in single if could_serve(subject, sku, changed))
        found = (problem for changed in fitting if (problem := serve(subject, changed, sku)) and problem.size <= limit)
        problems += islice(found, 1)
    return problems


def could_serve(subject: Subject, sku: KernelSku, case: Mapping[str, Any]) -> bool:
    """Whether `sku` can serve a case; another may be chosen."""
    values = canonical(subject.values(case))
    if not is_allowed(subject.spec, values):
        return False
    return not subject.plan.cannot_hold(subject.descriptor(values, sku.element), sku)


def served(subject: Subject, case: Mapping[str, Any], sku: KernelSku) -> Problem | None:
    """The problem of `case` if its plan, restricted to the architecture of `sku`, selects `sku`."""
    try:
        layout = Problem.kind_of(subject).only_layout(subject, sku)
        problem = Problem.of(subject, case, sku.element, sku.arch, layout, asked=sku.asked)
    except Unsupported:
        return None
    return problem if problem.plan.sku == sku and can_be_laid_out(problem) else None


def can_be_laid_out(problem: Problem) -> bool:
    """Whether every tensor that the problem's layout packs has whole 16-byte packs."""
    vec = 16 // problem.element.row.bytes
    axes = {name: problem.packed_axis(name) for name in problem.arguments}
    packed = {name: problem.shape_of(name) for name, axis in axes.items() if axis is not None}
    return all(0 not in shape and shape[axes[name] or 0] % vec == 0 for name, shape in packed.items())


def fills_packs(problem: Problem, vec: int) -> bool:
    """Whether written arrays have rows, and all of them are whole packs."""
    rows = [problem.shape_of(name)[-1] for name in problem.written if len(problem.shape_of(name)) > 1]
    return bool(rows) and all(extent % vec == 0 for extent in rows)


def random_problems(subject: Subject, sku: KernelSku, count: int, seed: int, limit: int = 1 << 16) -> list[Problem]:
    """Problems of any size for which selection chooses `sku`; deterministic for a seed."""
    if (own := Problem.kind_of(subject).random(subject, sku, count, seed, limit)) is not None:
        return own
    matches: list[Problem] = []
    rng = np.random.default_rng([seed, zlib.crc32(sku.symbol.encode())])
    for case in drawn_cases(subject, rng):
        problem = served(subject, case, sku)
        if problem is not None and problem.size <= limit:
            matches.append(problem)
        if len(matches) == count:
            break
    return matches


def drawn_cases(subject: Subject, rng: np.random.Generator, tries: int = _TRIES) -> Iterator[dict[str, Any]]:
    """Values for the fields that the spec draws, without violated requirements.

    A field that nothing else gives a value has one of those that the spec's cases list.
    """
    spec = subject.spec
    rules = dict(spec.tests.draw)
    rules |= {n: [False, True] for n, f in spec.descriptor.items() if f.type == "bool" and n not in rules}
    given = {name for name, field in spec.descriptor.items() if field.same_as} | rules.keys()
    needed = [n for n, value in subject.values({}).items() if value is None and n not in given]
    rules |= {n: listed for n in needed if (listed := [case[n] for case in spec.tests.cases if n in case])}
    for _ in range(tries if spec.tests.draw else 0):
        case = {name: _drawn(rule, rng) for name, rule in rules.items()}
        values = canonical(subject.values(case))
        if is_allowed(spec, values):
            yield case


def is_allowed(spec: OpSpec, values: Mapping[str, Any]) -> bool:
    """Whether `values` violate no requirement; a requirement without a value counts as violated."""
    try:
        return all(evaluate_condition(r.that, values) for r in spec.require)
    except ConditionError:
        return False


def _drawn(rule: Any, rng: np.random.Generator) -> Any:
    if not isinstance(rule, RangeSpec):
        return rule[int(rng.integers(len(rule)))]
    if rule.rank is None:
        return _extent(rule, rng)
    return [_extent(rule, rng) for _ in range(int(rng.integers(rule.rank[0], rule.rank[1] + 1)))]


def _extent(rule: RangeSpec, rng: np.random.Generator) -> int:
    """Log-uniform, so that small extents are as frequent as large ones."""
    low = math.log(max(rule.low, 1))
    value = int(math.exp(rng.uniform(low, math.log(max(rule.high, 1) + 1))))
    return rule.low if rule.low < 1 and rng.random() < 0.04 else min(max(value, rule.low), rule.high)


def benched(subject: Subject, element: ElementKind | str) -> list[Problem]:
    """The problems of the spec's benchmarks, which are as large as those of users, and the test cases if it has none.

    Their arrays are not to be drawn.
    """
    cases = [*subject.spec.bench.cases] or [*subject.spec.tests.cases]
    fields = [{n: v for n, v in case.items() if n in subject.spec.descriptor} for case in cases]
    return [Problem.of(subject, case, element) for case in fields]
