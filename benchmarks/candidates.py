"""Which other kernels than the rule's could serve a case: of the same promises, and not beyond a block's means."""

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
    """A kernel beside the rule's, with the plan that is held to it, or the `problem` that rules it out untimed."""

    sku: KernelSku
    plan: Any = None
    problem: str = ""


def candidates(case: Case, by_rule: KernelSku, machine: Machine) -> list[Candidate]:
    """Every other kernel of the op that `case` may be given to, in the order of the table."""
    device = get_device(machine.device)
    verdicts = case.subject.plan.explain(case.descriptor, BY_RULE, device=device).verdicts
    others = [v for v in verdicts if v.sku != by_rule and v.sku.layout is None]
    most = _spilled(_held_to(case, by_rule, machine), device.arch)
    found = []
    for verdict in others:
        said = verdict.reason or _unlike(verdict.sku, by_rule) or _idle(verdict.sku, case)
        try:
            plan = None if said else _held_to(case, verdict.sku, machine)
            if plan is not None and (spilled := _spilled(plan, device.arch)) > most:
                said = f"spills {spilled} bytes, the rule's choice {most}"
        except BaracudaError as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
        found.append(Candidate(verdict.sku, None if said else plan, said))
    return found


def maker_of(plan: Any, machine: Machine) -> Maker:
    """A plan as contestant: the inputs are what everybody gets, the outputs and the workspace its own."""

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


def _held_to(case: Case, sku: KernelSku, machine: Machine) -> Any:
    """The plan that chooses `sku` and nothing else."""
    only = PlanPreference(archs=frozenset({sku.arch}), schedules=frozenset({str(sku.schedule)}), tuned=False)
    plan = case.subject.plan.select(case.descriptor, only, device=machine.device)
    if plan.sku != sku:
        raise Unsupported(f"the arrays go to {plan.sku}")
    return plan


def _unlike(sku: KernelSku, by_rule: KernelSku) -> str:
    """What it promises otherwise: such a kernel is another choice, which is the caller's."""
    guarantee, wanted = sku.precision_guarantee, by_rule.precision_guarantee
    return "" if guarantee == wanted else f"promises {guarantee}, the rule's choice {wanted}"


def _idle(sku: KernelSku, case: Case) -> str:
    """Whether most threads of a row's tile would have nothing to do."""
    if not isinstance(sku.schedule, Tile) or sku.schedule.wide:
        return ""
    lanes = sku.schedule.lanes * sku.schedule.cluster
    packs = -(-case.subject.plan.facts_of(case.descriptor).near["cols"] * sku.element.row.bytes // VECTOR_BYTES)
    return f"has {lanes} threads for a row of {packs} packs" if lanes > 2 * packs else ""


def _spilled(plan: Any, arch: str) -> int:
    """Bytes that the kernels for arrays of the usual layout move for lack of registers; none on the host device."""
    if arch == "host":
        return 0
    wanted = f"BARACUDA_LAYOUT={next(iter(plan.LAYOUTS)).upper()}"
    sources = list(plan.sources())
    usual = [s for s in sources if wanted in s.defines or "BARACUDA_LAYOUT=0" in s.defines] or sources
    return max(compile_cubin(s, s.arch or arch).resources.spill_bytes for s in usual)
