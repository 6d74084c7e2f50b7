"""Which kernels have golden hashes, and of which problem: the same for every run, whatever was measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

from baracuda.runtime import KernelSku, Unsupported

from ..problems.cases import can_be_laid_out, problems, skus
from ..problems.problem import Problem
from ..problems.subject import Subject

_LARGEST = 1 << 17  # numbers that a problem computes; enough for several turns of most loops


def sampled(subject: Subject) -> Iterator[Problem]:
    """A problem of one kernel for each guarantee and element type; architectures and kinds are dealt to these in turn.

    It is one of the spec's cases, where one has such a kernel.
    """
    groups: dict[tuple[str, str], list[KernelSku]] = {}
    for sku in skus(subject, "host"):
        groups.setdefault((str(sku.precision_guarantee), str(sku.element)), []).append(sku)
    for number, alike in enumerate(groups.values()):
        archs = [*dict.fromkeys(sku.arch for sku in alike)]
        turn = archs[number % len(archs) :] + archs[: number % len(archs)]
        of_cases = (_of_cases(subject, alike, arch) for arch in turn)
        of_skus = (problems(subject, sku) for sku in sorted(alike, key=_hash))
        if able := next(filter(None, chain(of_cases, of_skus)), None):
            yield _chosen(subject, able, number / len(groups))


def _of_cases(subject: Subject, alike: Sequence[KernelSku], arch: str) -> list[Problem]:
    """The spec's cases that get one of some kernels for an architecture."""
    element = alike[0].element
    cases = [case for case in subject.spec.tests.cases if case.get("dtype", element) == element]
    found = []
    for case in cases:
        with suppress(Unsupported):
            problem = Problem.of(subject, {n: v for n, v in case.items() if n != "dtype"}, element, arch)
            found += [problem] if problem.size and problem.plan.sku in alike and can_be_laid_out(problem) else []
    return found


def _chosen(subject: Subject, able: Sequence[Problem], share: float) -> Problem:
    """The largest small problem, of the kind that lies at a `share` of all."""
    kinds = [kind for kind in subject.spec.by_kind if any(p.values.get("kind", "") == kind for p in able)]
    kind = kinds[int(share * len(kinds))]
    of_kind = [problem for problem in able if problem.values.get("kind", "") == kind]
    small = [problem for problem in of_kind if problem.size <= _LARGEST]
    return max(small, key=_size) if small else min(of_kind, key=_size)


def _size(problem: Problem) -> tuple[int, str]:
    return problem.size, str(problem.descriptor)


def _hash(sku: KernelSku) -> bytes:
    """Of what a kernel is beside its revision."""
    return hashlib.sha256(f"{sku.op} {sku.arch} {sku.element} {sku.schedule} {sku.layout}".encode()).digest()
