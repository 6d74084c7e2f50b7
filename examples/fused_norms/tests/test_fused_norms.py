"""Invariant: the ops do together what a model needs of them. Each on its own is tested by `baracuda-gen test`."""

from __future__ import annotations

from typing import Any

import fused_norms
import ml_dtypes
import numpy as np
import pytest

from baracuda.ops import functions

OPS = functions(fused_norms)


def drawn(count: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((count, *shape), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("cols", [64, 61])
def test_layers_add_to_one_residual_stream(cols: int, dtype: Any) -> None:
    *layers, stream = drawn(4, 3, cols).astype(dtype)
    total, gamma = stream.astype(np.float32), np.ones(cols, np.float32)
    for x in layers:
        y = OPS["add_rms_norm"](x, stream, gamma)
        total = (total + x.astype(np.float32)).astype(dtype).astype(np.float32)
        assert np.array_equal(stream, total)
        rms = np.sqrt((total * total).mean(axis=1, keepdims=True) + 1e-6)
        assert np.allclose(y.astype(np.float32), total / rms, rtol=1e-2 if dtype != np.float32 else 1e-5)


def test_the_normalized_sum_is_that_of_what_is_stored() -> None:
    x, stream = drawn(2, 5, 100).astype(ml_dtypes.bfloat16)
    gamma = np.ones(100, np.float32)
    y = OPS["add_rms_norm"](x, stream, gamma)
    again = OPS["add_rms_norm"](np.zeros_like(x), stream, gamma)
    assert y.tobytes() == again.tobytes()


@pytest.mark.parametrize("name", ["x", "z", "gamma"])
def test_gradients_are_those_of_the_forward(name: str) -> None:
    """Along a random direction, by a central difference."""
    x, z, dy, way = drawn(4, 4, 48)
    given = {"x": x, "z": z, "gamma": np.full(48, 1.5, np.float32)}
    way, step = way if name != "gamma" else way[0], np.float32(1e-2)

    def loss(side: int) -> Any:
        y, _ = OPS["gated_rms_norm"](**{**given, name: given[name] + side * step * way})
        return np.sum(y.astype(np.float64) * dy)

    _, rms = OPS["gated_rms_norm"](**given)
    slopes = OPS["gated_rms_norm_backward"](dy, **given, rms=rms)._asdict()
    assert np.isclose((loss(1) - loss(-1)) / (2 * step), np.sum(slopes[f"d{name}"].astype(np.float64) * way), rtol=1e-2)
