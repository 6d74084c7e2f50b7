"""The kernels, besides the rule's choice, that could serve a case with the same guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from baracuda.runtime import BaracudaError, KernelSku, PlanPreference, Tile, Unsupported, get_device
from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.plans.sku import VECTOR_BYTES

from .case import Case
from .machine import Machine
from .peers import Body, Call, Maker, Tensors

BY_RULE = PlanPreference(tuned=False)


@dataclass(frozen=True)
class Candidate:
    """A kernel and a plan restricted to it, or the `problem` that excludes it without timing."""

    sku: KernelSku
    plan: Any = None
    problem: str = ""


def candidates(case: Case, by_rule: KernelSku, machine: Machine) -> list[Candidate]:
    """Every other kernel of the op that can serve `case`, in the table's order."""
    device = get_device(machine.device)
    verdicts = case.subject.plan.explain(case.descriptor, BY_RULE, device=device).verdicts
    others = [v for v in verdicts if v.sku != by_rule and v.sku.layout is None]
    most = _spilled(_plan_for(case, by_rule, machine), device.arch)
    checked = []
    for verdict in others:
        problem = verdict.reason or _unlike(verdict.sku, by_rule) or _idle(verdict.sku, case)
        try:
            plan = None if problem else _plan_for(case, verdict.sku, machine)
            if plan is not None and (spilled := _spilled(plan, device.arch)) > most:
                problem = f"spills {spilled} bytes, the rule's choice {most}"
        except BaracudaError as error:
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
        checked.append(Candidate(verdict.sku, None if problem else plan, problem))
    return checked


def maker_of(plan: Any, machine: Machine) -> Maker:
    """A plan as a contestant: shared inputs, its own outputs and workspace."""

    def maker(case: Case) -> Body:
        fresh = [t for t in case.tensors(plan) if t.role == "out"]

        def body(tensors: Tensors) -> Call:
            arrays = {**tensors, **{t.name: machine.poisoned(t) for t in fresh}}
            workspace = machine.scratch(plan.workspace_bytes) if plan.workspace_bytes else None
            bound = plan.bind(**arrays, workspace=workspace, stream=machine.stream)
            written = {name: array for name, array in arrays.items() if plan.ARGUMENTS[name].written}

            def call() -> dict[str, Any]:
                bound()
                return written

            return call

        return body

    return maker


def _plan_for(case: Case, sku: KernelSku, machine: Machine) -> Any:
    """A plan restricted to `sku`."""
    archs, schedules = frozenset({sku.arch}), frozenset({str(sku.schedule)})
    preference = PlanPreference(archs=archs, schedules=schedules, tuned=False, **sku.asked)
    plan = case.subject.plan.select(case.descriptor, preference, device=machine.device)
    if plan.sku != sku:
        raise Unsupported(f"the arrays go to {plan.sku}")
    return plan


def _unlike(sku: KernelSku, by_rule: KernelSku) -> str:
    """How its guarantees differ: choosing such a kernel is up to the caller."""
    guarantee, rule_guarantee = sku.precision_guarantee, by_rule.precision_guarantee
    return "" if guarantee == rule_guarantee else f"promises {guarantee}, the rule's choice {rule_guarantee}"


def _idle(sku: KernelSku, case: Case) -> str:
    """Whether most threads of a row's tile would be idle."""
    if not isinstance(sku.schedule, Tile) or sku.schedule.wide:
        return ""
    lanes = sku.schedule.lanes * sku.schedule.cluster
    packs = -(-case.subject.plan.facts_of(case.descriptor).near["cols"] * sku.element.row.bytes // VECTOR_BYTES)
    return f"has {lanes} threads for a row of {packs} packs" if lanes > 2 * packs else ""


def _spilled(plan: Any, arch: str) -> int:
    """Spill bytes of the kernels for the default layout; none on the host device."""
    if arch == "host":
        return 0
    define = f"BARACUDA_LAYOUT={next(iter(plan.LAYOUTS)).upper()}"
    sources = list(plan.sources())
    usual = [s for s in sources if define in s.defines or "BARACUDA_LAYOUT=0" in s.defines] or sources
    return max(compile_cubin(s, s.arch or arch).resources.spill_bytes for s in usual)
