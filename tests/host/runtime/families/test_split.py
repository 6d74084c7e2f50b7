"""Sums in parts of the depth on the host device: only where a caller waives what they lack, and in one order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda.generated import DenseGemmDescriptor, DenseGemmPlan, LinearDescriptor, LinearPlan
from baracuda.runtime import PlanPreference
from baracuda.runtime.families.matmul.schedules import IN_PARTS, Sizes, Split

Floats = np.ndarray[Any, Any]

SIZES = {"batch_size": 2, "m": 5, "n": 72, "k": 1100}
DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


PARTS = frozenset(text for _, _, text in IN_PARTS)
WAIVED = frozenset({"batch_invariant"})


def in_parts(**fields: Any) -> PlanPreference:
    """Sums in parts, however short they are."""
    return PlanPreference(waives=WAIVED, schedules=PARTS, **fields)


def factors(element: str) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(5)
    a, b = (np.ldexp(rng.standard_normal(s), rng.integers(-6, 7, s)) for s in ((2, 5, 1100), (2, 1100, 72)))
    return a.astype(DTYPES[element]), b.astype(DTYPES[element])


def product(a: Floats, b: Floats, element: str, preference: PlanPreference | None = None) -> tuple[Floats, bool]:
    """The product, with a workspace full of NaN, and whether its sums are in parts."""
    plan = DenseGemmPlan.select(DenseGemmDescriptor(**SIZES | {"k": a.shape[2]}, element=element), preference)
    y = np.full((2, 5, 72), 7, a.dtype)
    plan.run(a=a, b=b, y=y, workspace=np.full(plan.workspace_bytes, 255, np.uint8))
    return y, "split" in str(plan.sku.schedule)


def pinned(element: str) -> list[PlanPreference]:
    skus = [row.sku for row in DenseGemmPlan.kernels(element) if "waives" in row.sku.asked]
    own = [{"archs": frozenset({sku.arch}), "schedules": frozenset({str(sku.schedule)})} for sku in skus]
    return [PlanPreference(**fields, **sku.asked) for fields, sku in zip(own, skus, strict=True)]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("rows", "columns", "depth"), [(1, 4096, 16384), (16, 1024, 65536), (16, 1024, 4096), (4096, 4096, 65536)]
)
def test_only_who_waives_batch_invariance_gets_parts(arch: str, rows: int, columns: int, depth: int) -> None:
    problem = LinearDescriptor(kind="silu", tokens=rows, in_features=depth, out_features=columns, element="bf16")
    archs = frozenset({arch})
    usual = LinearPlan.select(problem, PlanPreference(archs=archs)).sku
    assert usual.precision_guarantee.batch_invariant
    kept, is_long = frozenset({"deterministic"}), rows < 64 and depth > 10000
    assert LinearPlan.select(problem, PlanPreference(archs=archs, waives=kept)).sku == usual
    assert (
        LinearPlan.select(problem, PlanPreference(archs=archs, waives=WAIVED, rungs={"batch_invariant"})).sku == usual
    )
    rungs = kept | {"bit_stable_on_same_hardware"}
    fast = LinearPlan.select(problem, PlanPreference(archs=archs, waives=WAIVED, rungs=rungs)).sku
    assert ("split" in str(fast.schedule), fast.precision_guarantee.batch_invariant) == (is_long, not is_long)


def test_parts_follow_from_the_size_alone() -> None:
    few, many, long = Sizes(1, 16, 1024, 4096), Sizes(1, 512, 1024, 4096), Sizes(1, 1, 4096, 14336)
    assert [Split.of(sizes, 2) for sizes in (few, many, long)] == [(8, 512), (4, 1024), (2, 7168)]
    assert [Split.of(Sizes(1, 1, 1, 300), size) for size in (2, 4, 8)] == [(3, 128), (5, 64), (10, 32)]
    for sizes in (few, many, long, Sizes(3, 5, 72, 1100), Sizes(0, 0, 0, 0), Sizes(1, 1, 1, 128)):
        parts, terms = Split.of(sizes, 2)
        assert (parts - 1) * terms < max(sizes.depth, 1) <= parts * terms


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_parts_are_added_in_their_order(element: str) -> None:
    a, b = factors(element)
    y, is_split = product(a, b, element, in_parts())
    _, terms = Split.of(Sizes(2, 5, 72, 1100), a.itemsize)
    parts = [slice(first, first + terms) for first in range(0, 1100, terms)]
    of_parts = [product(np.ascontiguousarray(a[..., p]), b[:, p], element) for p in parts]
    expected = of_parts[0][0]
    for part, _ in of_parts[1:]:
        expected = expected + part
    assert (is_split, any(split for _, split in of_parts)) == (True, False)
    assert y.tobytes() == expected.tobytes()
    assert y.tobytes() != product(a, b, element)[0].tobytes()


@pytest.mark.parametrize("preference", pinned("bf16"), ids=lambda p: next(iter(p.schedules)))
def test_every_tile_and_layout_gives_the_same_bits(preference: PlanPreference) -> None:
    a, b = factors("bf16")
    expected = product(a, b, "bf16", in_parts())
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (a, b)]
    apart = [np.repeat(x, 2, axis=2)[..., ::2] for x in (a, b)]
    for arrays in ((a, b), (turned[0], b), (a, turned[1]), turned, apart):
        y, is_split = product(*arrays, "bf16", preference)
        assert (y.tobytes(), is_split) == (expected[0].tobytes(), expected[1])


def test_infinite_and_undefined_terms_are_those_of_the_whole_sum() -> None:
    a, b = factors("f32")
    a[0, 1, 7], a[0, 2, 300], a[0, 3, [9, 700]] = np.inf, np.nan, (np.inf, -np.inf)
    b[:] = np.abs(b)
    y, is_split = product(a, b, "f32", in_parts())
    assert is_split
    assert (y[0, 1] == np.inf).all()
    assert np.isnan(y[0, 2:4]).all()
    assert np.isfinite(np.delete(y[0], [1, 2, 3], axis=0)).all()


def test_rounded_floats_are_summed_in_parts_too() -> None:
    a, b = factors("f32")
    y, is_split = product(a, b, "f32", in_parts(math_precision="tf32"))
    whole, _ = product(a, b, "f32", PlanPreference(math_precision="tf32"))
    assert is_split
    assert 0 < np.abs(y - whole).max() <= 1e-4 * np.abs(whole).max()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results_are_made_of_the_whole_sum(arch: str) -> None:
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((3, 700), (40, 700), (40,)))
    problem = LinearDescriptor(kind="relu", tokens=3, in_features=700, out_features=40, element="bf16")
    plan = LinearPlan.select(problem, in_parts(archs=frozenset({arch})))
    y = np.empty((3, 40), x.dtype)
    plan.run(x=x, w=w, bias=bias, y=y, workspace=np.full(plan.workspace_bytes, 255, np.uint8))
    exact = np.maximum(x.astype(float) @ w.astype(float).T + bias.astype(float), 0)
    assert "split" in str(plan.sku.schedule)
    assert (np.abs(y.astype(float) - exact) <= 2.0**-8 * exact + 1e-3).all()
