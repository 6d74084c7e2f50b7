"""Matrix products on the host device: one promise of bits, whichever kernel and layout."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda.generated import DenseGemmDescriptor, DenseGemmPlan
from baracuda.runtime import PlanPreference

SIZES = {"batch_size": 2, "m": 40, "n": 136, "k": 200}


def factors(dtype: Any = ml_dtypes.bfloat16) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    of_a, of_b = (2, 40, 200), (2, 200, 136)
    spread = (np.ldexp(rng.standard_normal(shape), rng.integers(-6, 7, shape)) for shape in (of_a, of_b))
    a, b = (array.astype(dtype) for array in spread)
    return a, b


def product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], **sizes: Any) -> tuple[np.ndarray[Any, Any], str]:
    """The product, and the schedule of its kernel."""
    preference = sizes.pop("preference", None)
    element = {"bfloat16": "bf16", "float32": "f32"}[str(a.dtype)]
    plan = DenseGemmPlan.select(DenseGemmDescriptor(**{**SIZES, **sizes}, element=element), preference)
    y = np.full(plan.shapes()["y"][0], 7, a.dtype)
    plan.run(a=a, b=b, y=y)
    return y, str(plan.sku.schedule)


def kernels() -> list[PlanPreference]:
    rows = [row.sku for row in DenseGemmPlan.kernels("bf16") if not row.sku.asked]
    return [PlanPreference(archs=frozenset({s.arch}), schedules=frozenset({str(s.schedule)})) for s in rows]


@pytest.mark.parametrize("preference", kernels(), ids=lambda p: next(iter(p.schedules)))
def test_every_tile_gives_the_same_bits(preference: PlanPreference) -> None:
    a, b = factors()
    expected, portable = product(a, b)
    y, schedule = product(a, b, preference=preference)
    assert "block_k" in portable
    assert (schedule,) == tuple(preference.schedules or ())
    assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_rows_have_the_same_bits_alone(arch: str) -> None:
    a, b = factors()
    archs = PlanPreference(archs=frozenset({arch}))
    whole, _ = product(a, b, preference=archs)
    row, _ = product(a[:, 17:18], b, m=1, preference=archs)
    assert row.tobytes() == whole[:, 17:18].tobytes()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_layouts_have_the_same_bits(arch: str) -> None:
    a, b = factors()
    archs = PlanPreference(archs=frozenset({arch}))
    expected, _ = product(a, b, preference=archs)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (a, b)]
    shifted = np.zeros((2, 40, 203), a.dtype)
    shifted[:, :, 1:201] = a
    for left in (a, turned[0], shifted[:, :, 1:201]):
        for right in (b, turned[1]):
            y, _ = product(left, right, preference=archs)
            assert y.tobytes() == expected.tobytes()


def test_an_infinite_float_is_no_nan() -> None:
    a, b = (np.abs(x) + 0.5 for x in factors(np.float32))
    a[0, 3, 5], a[1, 2, 7] = np.inf, np.nan
    y, _ = product(a, b)
    assert np.isposinf(y[0, 3]).all()
    assert np.isnan(y[1, 2]).all()
    assert np.isfinite(np.delete(y[0], 3, axis=0)).all()
    assert np.isfinite(np.delete(y[1], 2, axis=0)).all()


def test_rounded_floats_have_the_same_bits_alone_and_in_any_layout() -> None:
    a, b = factors(np.float32)
    asked = PlanPreference(math_precision="tf32")
    whole, schedule = product(a, b, preference=asked)
    row, _ = product(a[:, 17:18], b, m=1, preference=asked)
    assert row.tobytes() == whole[:, 17:18].tobytes()
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (a, b)]
    y, same = product(*turned, preference=asked)
    assert (y.tobytes(), same) == (whole.tobytes(), schedule)


def test_floats_are_rounded_to_the_nearest_tf32_and_ties_away_from_zero() -> None:
    ties = np.float32([1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-11 - 2.0**-23, np.finfo(np.float32).max])
    a, b = np.zeros((2, 40, 200), np.float32), np.zeros((2, 200, 136), np.float32)
    a[0, :4, 0], b[0, 0, 0] = ties, 1
    y, _ = product(a, b, preference=PlanPreference(math_precision="tf32"))
    assert y[0, :4, 0].tolist() == [1 + 2.0**-10, -1 - 2.0**-10, 1, np.inf]
    y, _ = product(a, b)
    assert y[0, :3, 0].tolist() == [*ties[:2], ties[2] - np.float32(2.0**-23)]  # the second part has 11 bits, too
