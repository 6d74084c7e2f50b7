"""Selection: what it remembers, what preferences promise, and what measurements may decide."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

from baracuda.runtime import BaracudaError, KernelSku, PlanPreference
from baracuda.runtime.devices.architecture import Architecture
from baracuda.runtime.plans.sku import RUNGS
from baracuda.runtime.plans.tuned import Measurement

from ..problems.problem import Problem
from ..problems.subject import Subject
from ..trials.recording import GPUS, forget
from .remembered import apart

_ARCHS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
_MEASURED = 8  # kernels that a measurement is made up for


@dataclass(frozen=True)
class _Selection:
    """What a caller asks for."""

    descriptor: Any
    preference: PlanPreference | None = None
    device: Any = None
    layouts: Collection[str] | None = None


def check_served(subject: Subject) -> None:
    """Every case of the spec's tests, which says what the op is for, has a kernel in each element type."""
    for case in subject.spec.tests.cases:
        values = {name: value for name, value in case.items() if name != "dtype"}
        for element in [case["dtype"]] if "dtype" in case else subject.spec.dtypes:
            try:
                subject.plan.select(subject.descriptor(values, element))
            except BaracudaError as error:
                raise AssertionError(f"{subject.spec.op}: the case {case} is refused in {element}: {error}") from None


def check_selections(problem: Problem) -> None:
    """After other selections, each gives what it gives when nothing is remembered, and keeps to what was asked."""
    kind = type(problem.plan)
    with apart(kind):
        base = _Selection(problem.descriptor)
        selections = [base, *_others(problem, base)]
        answers = []
        for selection in selections:
            forget()
            kind._selected.clear()
            answers.append(_answer(kind, selection))
        forget()
        kind._selected.clear()
        for _ in range(2):
            for selection, answer in zip(selections, answers, strict=True):
                if (got := _answer(kind, selection)) != answer:
                    raise AssertionError(f"{selection} gives after others {got}, when nothing is remembered {answer}")


def check_pickles(problem: Problem) -> None:
    """A plan comes back from a pickle with all that was asked of it."""
    kind = type(problem.plan)
    own = _Selection(problem.descriptor, PlanPreference(archs=frozenset({problem.plan.sku.arch}), tuned=False))
    with apart(kind):
        for asked in (own, *(replace(own, layouts=(layout,)) for layout in problem.plan.LAYOUTS)):
            try:
                plan = kind.select(asked.descriptor, asked.preference, layouts=asked.layouts)
            except BaracudaError:  # no kernel for that
                continue
            copied = pickle.loads(pickle.dumps(plan))
            if _asked_of(copied) != _asked_of(plan):
                raise AssertionError(f"{asked} comes back from a pickle as {_asked_of(copied)}")


def _asked_of(plan: Any) -> tuple[Any, ...]:
    return plan.descriptor, plan._preference, plan.layouts, plan.skus


def _answer(kind: Any, asked: _Selection) -> tuple[object, ...]:
    """What there is to see of the plan, or the error."""
    try:
        plan = kind.select(asked.descriptor, asked.preference, device=asked.device, layouts=asked.layouts)
    except BaracudaError as error:
        return type(error).__name__, str(error)
    preference, skus = asked.preference or PlanPreference(), plan.skus
    wrong = [f"{sku} {reason}" for sku in skus if (reason := _breach(preference, sku))]
    needed = max(kind.workspace_of(plan.descriptor, sku) for sku in skus)
    if plan.workspace_bytes != needed:
        wrong.append(f"wants a workspace of {plan.workspace_bytes} bytes where its kernels need {needed}")
    if plan.workspace_bytes > preference.max_workspace_bytes:
        wrong.append(f"needs {plan.workspace_bytes} bytes of workspace")
    if asked.layouts is not None and set(plan.layouts) != set(asked.layouts):
        wrong.append(f"accepts {sorted(plan.layouts)}")
    if asked.layouts is None and plan.sku != (chosen := kind.explain(*_of_explain(asked), device=asked.device).chosen):
        wrong.append(f"is not {chosen}, which explain names")
    if wrong:
        raise AssertionError(f"{asked} gives {plan!r}, which {'; '.join(wrong)}")
    return plan.descriptor, skus, plan.layouts, plan.workspace_bytes, plan._preference


def _of_explain(asked: _Selection) -> tuple[Any, PlanPreference | None]:
    return asked.descriptor, asked.preference


def _breach(wish: PlanPreference, sku: KernelSku) -> str:
    """How a kernel breaks a preference, or ""."""
    promised = sku.precision_guarantee
    if lacking := [rung for rung in sorted(wish.rungs) if not getattr(promised, rung)]:
        return f"does not promise {', '.join(lacking)}"
    if wish.archs is not None and sku.arch not in wish.archs:
        return "is for another architecture"
    if wish.schedules is not None and str(sku.schedule) not in wish.schedules:
        return "has another schedule"
    if wish.numerics not in (None, promised.numerics):
        return "has another revision of numerics"
    if wish.math_precision != promised.math_precision and (wish.math_precision or "math_precision" in sku.asked):
        return "has another math precision"
    if sku.asked.get("waives", frozenset()) - wish.waives:
        return "lacks what nobody waived"
    return "is for sm_90a" if sku.arch == "sm_90a" and not wish.allow_sm90a else ""


def _others(problem: Problem, base: _Selection) -> Iterator[_Selection]:
    """One thing changed."""
    yield from (replace(base, descriptor=descriptor) for descriptor in _descriptors(problem))
    yield from (replace(base, preference=preference) for preference in _preferences(problem))
    devices = [Architecture(arch, arch) for arch in _ARCHS]
    names = [f"cuda:{ordinal}" for ordinal in range(len(GPUS))]
    yield from (replace(base, device=device) for device in ("host", *names, *devices))
    yield from (replace(base, layouts=(layout,)) for layout in problem.plan.LAYOUTS)
    yield replace(base, layouts=tuple(problem.plan.LAYOUTS))


def _descriptors(problem: Problem) -> Iterator[Any]:
    """Another value of each field alone, where the descriptor allows it, and every element type."""
    spec = problem.spec
    changes = [{name: value} for case in spec.tests.cases for name, value in case.items() if name in spec.descriptor]
    changes += [{n: v for n, v in case.items() if n in spec.descriptor} for case in spec.bench.cases]
    changes += [{name: not problem.values[name]} for name, field in spec.descriptor.items() if field.type == "bool"]
    for change in changes:
        yield problem.subject.descriptor({**problem.values, **change}, problem.element)
    yield from (problem.subject.descriptor(problem.values, dtype) for dtype in spec.dtypes)


def _preferences(problem: Problem) -> Iterator[PlanPreference]:
    """Each field of a preference alone, with each value that tells kernels apart."""
    skus = [row.sku for row in type(problem.plan).kernels(problem.element)]
    needs = {type(problem.plan).workspace_of(problem.descriptor, sku) for sku in skus}
    values: dict[str, Any] = {
        "max_workspace_bytes": sorted({max(need + more, 0) for need in needs for more in (-1, 0)})[:_MEASURED],
        "allow_sm90a": [False],
        "prefer_backend": ["bespoke"],
        "rungs": [frozenset({rung}) for rung in RUNGS],
        "archs": [frozenset({arch}) for arch in sorted({sku.arch for sku in skus})],
        "schedules": [frozenset({text}) for text in sorted({str(sku.schedule) for sku in skus})[:_MEASURED]],
        "tuned": [False],
        "numerics": [type(problem.plan).NUMERICS, type(problem.plan).NUMERICS + 1],
        "math_precision": sorted({sku.precision_guarantee.math_precision for sku in skus}),
        "waives": [frozenset({rung}) for rung in RUNGS],
    }
    for field in fields(PlanPreference):
        yield from (PlanPreference(**{field.name: value}) for value in values[field.name])


def check_measured_choices(problem: Problem) -> None:
    """A measured kernel is taken if it serves the problem on the device and promises what the rule's promises."""
    kind = type(problem.plan)
    with apart(kind):
        before = vars(kind).get("TUNED")
        try:
            for ordinal in range(1, len(GPUS)):
                _check_measured(problem, kind, ordinal)
        finally:
            kind.TUNED = before


def _check_measured(problem: Problem, kind: Any, ordinal: int) -> None:
    device, descriptor = f"cuda:{ordinal}", problem.descriptor
    by_rule = kind.select(descriptor, PlanPreference(tuned=False), device=device).sku
    verdicts = kind.explain(descriptor, PlanPreference(tuned=False), device=device).verdicts
    # Of each outcome some.
    outcomes: dict[tuple[bool, bool], list[KernelSku]] = {}
    for verdict in verdicts:
        same = verdict.sku.precision_guarantee == by_rule.precision_guarantee
        outcomes.setdefault((bool(verdict), same), []).append(verdict.sku)
    facts, arch = kind.facts_of(descriptor), GPUS[ordinal][0]
    for allowed, skus in outcomes.items():
        for sku in skus[:_MEASURED]:
            measured = Measurement(str(problem.element), facts.same, facts.near, str(sku), {})
            chosen = sku if all(allowed) else by_rule
            far = replace(measured, near={name: 2 * extent for name, extent in facts.near.items()})
            for note, table, expected in (
                ("for this problem", {arch: (measured,)}, chosen),
                ("on another architecture", {"sm_61": (measured,)}, by_rule),
                ("for larger problems", {arch: (far,)}, chosen if far == measured else by_rule),
            ):
                kind.TUNED = SimpleNamespace(by_arch=table)
                kind._selected.clear()
                if (got := kind.select(descriptor, device=device).sku) != expected:
                    case = f"{descriptor} on {GPUS[ordinal]}, {sku} measured {note}"
                    raise AssertionError(f"{case}: selection takes {got}; needs {expected}")
