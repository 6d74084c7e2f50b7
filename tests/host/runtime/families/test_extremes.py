"""Invariant: places of extremes along columns are the first of many equal ones, or of NaN, in every order of values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda import ops
from baracuda.generated import ReduceAxesArgDescriptor, ReduceAxesArgPlan, VarMeanDescriptor, VarMeanPlan
from baracuda.runtime import PlanPreference

UNSHARED = PlanPreference(schedules=frozenset({"t256.packs4.blocks1"}))  # a thread has many terms


def values(kind: str, rows: int, cols: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(5)
    x = random.integers(0, 3, (rows, cols)).astype(np.float32)
    match kind:
        case "one value":
            x[:] = 7
        case "infinities":
            x = np.where(x == 2, np.inf, -np.inf)
            x[:, ::2] = -np.inf
            x[:, 1::4] = np.inf
        case "some NaN":
            x[random.integers(0, rows, 3 * cols), np.tile(np.arange(cols), 3)] = np.nan
        case "late":  # many of the largest and of the smallest come behind all others
            x[1500:2300], x[2300:] = 9, -9
    return x


@pytest.mark.parametrize("cols", [64, 61])
@pytest.mark.parametrize("kind", ["few values", "one value", "infinities", "some NaN", "late"])
def test_the_first_of_equal_ones_is_found(kind: str, cols: int) -> None:
    x = values(kind, 3000, cols).astype(ml_dtypes.bfloat16)
    for name, place in (("argmax", np.argmax), ("argmin", np.argmin)):
        problem = ReduceAxesArgDescriptor(kind=name, input_shape=x.shape, axes_mask=1, element="bf16")
        plan = ReduceAxesArgPlan.select(problem, UNSHARED, device="host")
        at = np.zeros(cols, np.int64)
        plan.run(x=x, at=at)
        assert np.array_equal(at, place(x.astype(np.float32), axis=0)), name


def test_places_are_cut_into_one_wave_where_cells_are_packs() -> None:
    def blocks(cols: int) -> int:
        plan = ReduceAxesArgPlan.select(
            ReduceAxesArgDescriptor(kind="argmax", input_shape=(16384, cols), axes_mask=1, element="bf16")
        )
        assert plan._cut is not None and plan._cut.walk == "columns"
        return plan._cut.blocks * plan._cut.splits

    two = 2 * 132  # on each multiprocessor of an H200
    assert 0.8 * two <= blocks(14336) <= two < 2 * two < blocks(14335)


@pytest.mark.parametrize("cols", [8, 16, 64, 512])
def test_blocks_of_one_wave_leave_no_thread_idle(cols: int) -> None:
    plan = VarMeanPlan.select(VarMeanDescriptor(input_shape=(100_000, cols), axes_mask=1, element="f32"))
    cut, owners = plan._cut, cols // 4
    assert cut is not None and cut.walk == "columns" and cut.splits > 1
    assert min(owners, 256 // cut.slices) * cut.slices == 256


@pytest.mark.parametrize("shape", [(5000, 0, 8), (300_000, 0, 8), (4480, 0, 64), (20_000, 64, 0), (0, 64), (9, 0)])
def test_nothing_is_kept_of_nothing(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    y, mu = ops.var_mean(x, axes_mask=1)
    assert y.shape == mu.shape == shape[1:]
    assert ops.reduce_axes(x, kind="sum", axes_mask=1).shape == shape[1:]
    assert ops.reduce_axes_arg(x, kind="argmax", axes_mask=1).shape == shape[1:]
