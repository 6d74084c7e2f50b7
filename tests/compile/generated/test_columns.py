"""Invariant: reductions over columns keep what they read in registers, and leave room for other blocks."""

from __future__ import annotations

from baracuda.generated import (
    LinearCrossEntropyDescriptor,
    LinearCrossEntropyPlan,
    ReduceAxesBoolDescriptor,
    ReduceAxesBoolPlan,
)
from baracuda.runtime import PlanPreference
from baracuda.runtime.compile.cubin import compile_cubin

CLASSES = 64  # one part of them, so that what parts have in common is summed over columns
USUAL = {"BARACUDA_PASS=3", "BARACUDA_WALK=COLUMNS", "BARACUDA_WIDE=0"}


def test_sums_over_columns_spill_nothing() -> None:
    problem = LinearCrossEntropyDescriptor(tokens=64, features=64, classes=CLASSES, element="bf16")
    plan = LinearCrossEntropyPlan.select(problem, PlanPreference(archs=frozenset({"sm_80"})))
    sources = {layout: source for layout, _, source in plan.variants() if {*source.defines} >= USUAL}
    assert {layout: compile_cubin(source, "sm_90").resources.spill_bytes for layout, source in sources.items()} == {
        "packed": 0,
        "flat": 0,
        "strided": 0,
    }


def test_reductions_of_bools_leave_room_for_three_blocks() -> None:
    problem = ReduceAxesBoolDescriptor(kind="any", input_shape=(1024, 64), axes_mask=1, element="bf16")
    plan = ReduceAxesBoolPlan.select(problem, PlanPreference(archs=frozenset({"sm_80"})))
    narrow = [source for _, _, source in plan.variants() if "BARACUDA_WIDE=0" in source.defines]
    assert narrow and all(compile_cubin(source, "sm_90").resources.registers <= 65536 // (3 * 256) for source in narrow)
