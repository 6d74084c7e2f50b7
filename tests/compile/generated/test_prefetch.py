"""Invariant: reductions of one array that lies in packs copy the next packs while they reduce those they have."""

from __future__ import annotations

import pytest

from baracuda.generated import (
    ReduceAxesArgDescriptor,
    ReduceAxesArgPlan,
    ReduceAxesDescriptor,
    ReduceAxesPlan,
    ReducedLossDescriptor,
    ReducedLossPlan,
    VarMeanDescriptor,
    VarMeanPlan,
)
from baracuda.runtime import PlanPreference
from baracuda.runtime.compile.cubin import assemble
from baracuda.runtime.plans.plan import Plan

COPY = "cp.async.cg.shared.global"
PACKS = 4  # of a thread at a time
AHEAD = 2  # groups of them that are on their way before the first one is reduced


def _copies(plan: Plan) -> int:
    source = next(each for _, _, each in plan.variants() if {*each.defines} >= {"BARACUDA_LAYOUT=PACKED"})
    return assemble(source, "sm_90").ptx.count(COPY)


def _reduction(kind: str, mask: int) -> Plan:
    only = PlanPreference(archs=frozenset({"sm_80"}))
    shape = {"input_shape": (1024, 4096), "axes_mask": mask, "element": "bf16"}
    if kind == "variance":
        return VarMeanPlan.select(VarMeanDescriptor(**shape), only)
    if kind == "argmax":
        return ReduceAxesArgPlan.select(ReduceAxesArgDescriptor(kind=kind, **shape), only)
    if kind == "mse":
        return ReducedLossPlan.select(ReducedLossDescriptor(kind=kind, **shape), only)
    return ReduceAxesPlan.select(ReduceAxesDescriptor(kind=kind, **shape), only)


@pytest.mark.parametrize(("kind", "mask", "groups"), [("sum", 1, 1), ("argmax", 2, 1), ("variance", 1, 2)])  # of a step
def test_packs_of_one_array_are_copied_ahead(kind: str, mask: int, groups: int) -> None:
    assert _copies(_reduction(kind, mask)) == PACKS * (AHEAD + groups)


def test_packs_of_two_arrays_are_not() -> None:
    assert _copies(_reduction("mse", 2)) == 0
