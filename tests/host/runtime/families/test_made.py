"""Weights of four bits made while few rows are multiplied: a row has the bits that it has among many."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda.ops as ops
from baracuda.generated import Int4LinearDescriptor, Int4LinearPlan

MANY = 70  # rows, for which weights are in memory
FEW = (1, 5, 17, 40, 64)
ELEMENTS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
# Depth, columns and size of groups: several turns of the ring, groups that share runs of the depth, odd ends.
SHAPES = [(2080, 80, 128), (264, 72, 8), (520, 24, 3), (100, 40, 100), (777, 33, 32), (2304, 20, 1024), (96, 16, 1)]


def whole(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    return rng.integers(0, 16, shape), rng.normal(size=shape)


def odd(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Some rows have zero points that are not whole."""
    zero = rng.integers(0, 16, shape).astype(float)
    zero[::3] = 7 * rng.normal(size=zero[::3].shape)
    return zero, rng.normal(size=shape)


def large(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Differences from codes that elements do not hold, and scales that are subnormal in f16."""
    return rng.integers(-300, 3000, shape), 1e-5 * rng.normal(size=shape)


def special(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    zero, scale = rng.integers(0, 16, shape).astype(float), rng.normal(size=shape)
    scale[0, 0], scale[1, -1], zero[2, 0], zero[3, 0], zero[4, 0] = np.inf, np.nan, np.nan, -0.0, np.inf
    return zero, scale


@pytest.mark.parametrize("values", [whole, odd, large, special])
@pytest.mark.parametrize("element", ELEMENTS)
def test_few_rows_have_the_bits_of_many(element: str, values: Any) -> None:
    rng, dtype = np.random.default_rng(7), ELEMENTS[element]
    for depth, columns, size in SHAPES:
        x = rng.normal(size=(MANY, depth)).astype(dtype)
        codes = rng.integers(-(2**31), 2**31, (columns, -(-depth // 8))).astype(np.int32)
        zero, scale = (of.astype(dtype) for of in values(rng, (columns, -(-depth // size))))
        many = ops.int4_linear(x, codes, scale, zero, group_size=size)
        for rows in FEW:
            few = ops.int4_linear(x[:rows], codes, scale, zero, group_size=size)
            same = few.view(np.uint16) == many[:rows].view(np.uint16)
            assert (same | (np.isnan(few.astype(float)) & np.isnan(many[:rows].astype(float)))).all(), (depth, rows)


def test_any_strides_give_the_same_bits() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(3, 288)).astype(np.float16)
    codes = rng.integers(-(2**31), 2**31, (36, 40)).astype(np.int32)
    zero, scale = rng.integers(0, 16, (40, 9)).astype(np.float16), rng.normal(size=(40, 9)).astype(np.float16)
    packed = ops.int4_linear(x, np.ascontiguousarray(codes.T), scale, zero, group_size=32)
    strided = ops.int4_linear(np.asfortranarray(x), codes.T, np.asfortranarray(scale), zero[:, ::-1][:, ::-1], group_size=32)
    assert np.array_equal(packed.view(np.uint16), strided.view(np.uint16))


@pytest.mark.parametrize(("rows", "is_made"), [(1, True), (64, True), (65, False)])
def test_few_rows_take_no_workspace(rows: int, is_made: bool) -> None:
    problem = Int4LinearDescriptor(tokens=rows, in_features=64, out_features=16, element="f16")
    plan = Int4LinearPlan.select(problem)
    assert (plan.workspace_bytes == 0) == is_made
    assert len({source.symbol for source in plan.sources()}) == (1 if is_made else 2)
