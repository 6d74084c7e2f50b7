"""Invariant: functions are as accurate as what becomes of them needs, in every element and every type of output."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from host.own_package import package

from baracuda import ops

U = {np.dtype(ml_dtypes.bfloat16): 2.0**-8, np.dtype(np.float16): 2.0**-11}
LEAST = {np.dtype(ml_dtypes.bfloat16): 2.0**-133, np.dtype(np.float16): 2.0**-24}
TWO_OUTPUTS = """
op: powers
doc: Powers of e, in two types.
inputs: {x: exponents}
outputs:
  y: {dtype: f32, doc: powers}
  half: {doc: halves of them}
program: |
  y = exp(x)
  half = 0.5 * exp(x)
"""


def every_half(dtype: Any) -> np.ndarray[Any, Any]:
    halves = np.arange(65536, dtype=np.uint16).view(dtype)
    return halves[np.isfinite(halves.astype(np.float32))]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("kind", ["erfc", "gelu"])
def test_every_half_is_within_the_bound(kind: str, dtype: Any) -> None:
    """One rounding of the result, ten of the function, and of a product what its operand's rounding becomes."""
    x = every_half(dtype)
    exact = x.astype(np.float64)
    erfc = np.vectorize(math.erfc)
    wanted = erfc(exact) if kind == "erfc" else 0.5 * exact * erfc(-exact / math.sqrt(2.0))
    rounded = 0 if kind == "erfc" else 4 + 2 * np.square(np.clip(exact, -20, 0))
    got = ops.unary(x, kind=kind).astype(np.float64)
    bound = np.abs(wanted) * (U[x.dtype] + (10 + rounded) * 2.0**-24) + 0.5 * LEAST[x.dtype]
    np.testing.assert_array_less(np.abs(got - wanted), np.maximum(bound, 1e-300))


def test_a_power_is_as_accurate_as_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = package(tmp_path, TWO_OUTPUTS, monkeypatch)
    x = np.linspace(-85, 85, 4001).astype(ml_dtypes.bfloat16)
    y, half = np.zeros(x.shape, np.float32), np.zeros_like(x)
    plan = own.PowersPlan.select(own.PowersDescriptor(input_shape=x.shape, element="bf16"), device="host")
    plan.run(x=x, y=y, half=half)
    wanted = np.exp(x.astype(np.float64))
    assert np.max(np.abs(y / wanted - 1)) < 5 * 2.0**-24  # two ulps and a rounding
    assert np.max(np.abs(half.astype(np.float64) / (0.5 * wanted) - 1)) < 2.0**-8
