"""Invariant: where nothing was measured, the choice is sane: every row has a kernel, the least that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from repository import few, project

import baracuda.generated as plans
from baracuda.codegen.families.row.op import RowOp
from baracuda.runtime import REGISTRY, ElementKind, PlanPreference, Tile
from baracuda.runtime.devices.architecture import Architecture
from baracuda.runtime.plans.sku import VECTOR_BYTES

plans.import_all()
LONGEST = 131072
PROJECT = project()
BY_RULE = PlanPreference(tuned=False)
NORMS = {"norm_axes_mask": 2, "has_gamma": True}
OPS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "rms_norm": (plans.RMSNormPlan, plans.RMSNormDescriptor, {**NORMS, "eps": 1e-6}),
    "rms_norm_backward": (plans.RMSNormBackwardPlan, plans.RMSNormBackwardDescriptor, NORMS),
    "layer_norm_backward": (
        plans.LayerNormBackwardPlan,
        plans.LayerNormBackwardDescriptor,
        {"norm_axes_mask": 2, "has_affine": True},
    ),
    "softmax": (plans.SoftmaxPlan, plans.SoftmaxDescriptor, {"softmax_axis": 1}),
}
CASES = [(op, element, arch) for op in OPS for element in ("f32", "bf16") for arch in ("sm_80", "sm_90")]


@cache
def lengths(op: str, element: str) -> tuple[int, ...]:
    """Of all rows those whose choice may differ from that of their neighbours', and many more."""
    held = {r.sku.tile.columns(r.sku.element.row.bytes) for r in REGISTRY.candidates(op, element)}
    near = {n + step for n in (*held, *(1 << e for e in range(18))) for step in range(-9, 10)}
    return tuple(sorted(n for n in {*near, *range(1, 1025), *range(1024, LONGEST, 509)} if 0 < n <= LONGEST))


@cache
def chosen(op: str, element: str, arch: str) -> dict[int, Tile]:
    plan, descriptor, given = OPS[op]
    device = Architecture(arch, arch)
    return {
        n: plan.select(descriptor(input_shape=(64, n), element=element, **given), BY_RULE, device=device).sku.tile
        for n in lengths(op, element)
    }


def packs(cols: int, element: str) -> int:
    return -(-cols * ElementKind(element).row.bytes // VECTOR_BYTES)


def slots(tile: Tile, cols: int, element: str) -> int:
    """Packs that the threads of a row go through once, those beyond its end included."""
    across = tile.lanes * tile.cluster
    return -(-packs(cols, element) // across) * across


@pytest.mark.parametrize(("op", "element", "arch"), CASES)
def test_every_row_has_the_least_tile_that_holds_it(op: str, element: str, arch: str) -> None:
    """None for which another takes fewer threads and registers, and no more passes; what can be held is not walked."""
    tiles = [r.sku.tile for r in REGISTRY.candidates(op, element, arch)]
    size = ElementKind(element).row.bytes
    for cols, tile in chosen(op, element, arch).items():
        holding = [t for t in tiles if not t.wide and t.columns(size) >= cols]
        assert tile.wide is (not holding), (cols, tile)
        if holding:
            assert tile.columns(size) == min(t.columns(size) for t in holding), (cols, tile)


@pytest.mark.parametrize(("op", "element", "arch"), CASES)
def test_longer_rows_never_get_smaller_tiles(op: str, element: str, arch: str) -> None:
    size = ElementKind(element).row.bytes
    order: Sequence[tuple[bool, int]] = [(t.wide, t.columns(size)) for t in chosen(op, element, arch).values()]
    held = [columns for wide, columns in order if not wide]
    assert held == sorted(held) and [wide for wide, _ in order] == sorted(wide for wide, _ in order)


@pytest.mark.parametrize(("op", "element", "arch"), CASES)
def test_a_longer_row_is_never_twice_the_work(op: str, element: str, arch: str) -> None:
    """What the threads of a row go through has no cliff of more than a factor of two between neighbours."""
    for (shorter, small), (longer, large) in pairwise(chosen(op, element, arch).items()):
        if longer == shorter + 1 and packs(shorter, element) >= 8:  # the narrowest tile has eight threads for a row
            before, after = slots(small, shorter, element), slots(large, longer, element)
            assert after <= 2 * before, (shorter, longer, small, large)


@pytest.mark.parametrize("op", [op for op in PROJECT.ops.values() if isinstance(op, RowOp)], ids=lambda op: op.name)
def test_a_row_that_is_walked_is_at_most_twice_the_traffic(op: RowOp) -> None:
    """Where a row outgrows every tile and is read again in each pass."""
    passes = op.passes[:-1] if op.column_sums else op.passes
    elements = [t for t in op.tensors if t.over == "element"]
    again = {t.name: sum(t in p.reads for p in passes) + bool(op.column_sums) for t in elements if t.role != "out"}
    written = sum(t.role != "in" for t in elements)
    assert sum(again.values()) + written <= 2 * (len(again) + written)


@pytest.mark.parametrize("op", few(sorted({r.sku.op for r in REGISTRY}), 20))
def test_no_two_kernels_are_the_same_but_for_their_name(op: str) -> None:
    """Each element, architecture, layout and schedule is there once, so that a preference can name one."""
    found = [(r.sku.element, r.sku.arch, r.sku.layout, str(r.sku.schedule)) for r in REGISTRY.candidates(op)]
    assert len(found) == len(set(found))
