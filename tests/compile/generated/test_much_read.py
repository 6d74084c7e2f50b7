"""Invariant: sums over columns of much that is read keep all of it in registers, in every layout."""

from __future__ import annotations

from baracuda.generated import LinearCrossEntropyDescriptor, LinearCrossEntropyPlan
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
