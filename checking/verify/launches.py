"""What hand-written kernels are launched with: in a spec's cases, and on both sides of each comparison that decides.

Nothing is compiled, so there is a problem for every comparison, whichever kernels a run samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from baracuda.codegen.conditions.gaps import gaps_of
from baracuda.runtime import BaracudaError, ElementKind, KernelSku, PlanPreference
from baracuda.runtime.devices.architecture import Architecture

from ..problems.cases import skus
from ..problems.edges import SIDES, solutions
from ..problems.problem import Problem
from ..problems.subject import Subject

_ARCHS = ("sm_80", "sm_89", "sm_90")
_MULTIPROCESSORS = 132


def launches_of(subject: Subject) -> dict[str, str]:
    """By element type, number of a case of the spec's tests and what is changed in it: settings and launches."""
    if (texts := Problem.kind_of(subject).launch_terms(subject.spec)) is None:
        return {}
    goals = [(gap, side) for gap in dict.fromkeys(gap for text in texts for gap in gaps_of(text)) for side in SIDES]
    answers: dict[str, str] = {}
    for sku in _one_of_each_table(subject):
        bases = list(_of_cases(subject, sku.element))
        answers |= {f"{sku.element} case {n}": _answer(subject, base.descriptor) for n, base in enumerate(bases)}
        for gap, side in goals:
            for number, base in enumerate(bases):
                if (case := next(solutions(base, sku, gap, side), None)) is not None:
                    changed = [f"{name}={value}" for name, value in case.items() if base.case.get(name) != value]
                    descriptor = subject.descriptor(case, sku.element)
                    answers[" ".join([str(sku.element), f"case {number}", *changed])] = _answer(subject, descriptor)
                    break
    return answers


def _one_of_each_table(subject: Subject) -> list[KernelSku]:
    """The first kernel of an element type, of types that the same kernels serve."""
    tables: dict[ElementKind, list[tuple[str, str]]] = {}
    for sku in skus(subject):
        tables.setdefault(sku.element, []).append((sku.arch, str(sku.schedule)))
    elements = {tuple(table): element for element, table in reversed(tables.items())}.values()
    return [next(sku for sku in skus(subject) if sku.element == element) for element in elements]


def _of_cases(subject: Subject, element: ElementKind) -> Iterator[Problem]:
    for case in subject.spec.tests.cases:
        yield Problem.of(subject, {name: value for name, value in case.items() if name != "dtype"}, element)


def _answer(subject: Subject, descriptor: Any) -> str:
    """Settings; for each architecture the kernel's number, of launches grid, threads and shared bytes, and scratch."""
    settings = " ".join(str(int(value)) for value in subject.plan.settings_of(descriptor).values())
    return "; ".join(dict.fromkeys([settings, *(_on(subject, descriptor, arch) for arch in _ARCHS)]))


def _on(subject: Subject, descriptor: Any, arch: str) -> str:
    try:
        plan = subject.plan.select(descriptor, PlanPreference(tuned=False), device=Architecture(arch, arch))
    except BaracudaError as error:
        return type(error).__name__
    kernels: Sequence[KernelSku] = [row.sku for row in subject.plan.kernels(descriptor.element)]
    launched = plan._launched(descriptor, plan.sku, _MULTIPROCESSORS)
    shown = [f"{k.name} {'x'.join(map(str, k.grid)).removesuffix('x1x1')}, {k.threads}, {k.shared}" for k in launched]
    return ": ".join([f"{plan.sku.arch} {kernels.index(plan.sku)}", *shown, str(plan.workspace_bytes)])
