"""Invariant: `moe` is a mixture of experts by its definition, with the same bits every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda.ops import moe
from baracuda.runtime import InvalidProblem, Unsupported

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torch.nn.functional")


def drawn(dtype: Any, *, tokens: int = 37, width: int = 48, hidden: int = 40, experts: int = 6) -> dict[str, Any]:
    torch.manual_seed(3)
    shapes = {"x": (tokens, width), "logits": (tokens, experts), "w_gate": (experts, hidden, width)}
    shapes |= {"w_up": (experts, hidden, width), "w_down": (experts, width, hidden)}
    return {name: (torch.randn(shape) / shape[-1] ** 0.25).to(dtype) for name, shape in shapes.items()}


def defined(arrays: dict[str, Any], top_k: int, *, renormalize: bool) -> Any:
    """One token and one expert after the other, in float64."""
    x, logits, w_gate, w_up, w_down = (array.double() for array in arrays.values())
    weights, ids = torch.softmax(logits, -1).topk(top_k)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    y = []
    for t in range(x.shape[0]):
        parts = [w_down[e] @ (functional.silu(w_gate[e] @ x[t]) * (w_up[e] @ x[t])) for e in ids[t]]
        y.append(sum(weight * part for weight, part in zip(weights[t], parts, strict=True)))
    return torch.stack(y)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.04), ("float64", 1e-12)])
@pytest.mark.parametrize("renormalize", [True, False])
def test_a_mixture_of_experts(dtype: str, tolerance: float, renormalize: bool) -> None:
    arrays = drawn(getattr(torch, dtype))
    arrays["logits"][:, 2] -= 100  # an expert without rows
    y = moe(**arrays, top_k=2, renormalize=renormalize)
    expected = defined(arrays, 2, renormalize=renormalize)
    assert y.dtype == arrays["x"].dtype
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)


def test_a_row_has_the_same_bits_in_any_batch() -> None:
    arrays = drawn(torch.bfloat16)
    whole = moe(**arrays, top_k=3)
    assert torch.equal(whole, moe(**arrays, top_k=3))
    few = {name: array[5:9] if name in ("x", "logits") else array for name, array in arrays.items()}
    assert torch.equal(whole[5:9], moe(**few, top_k=3))


@pytest.mark.parametrize("renormalize", [True, False])
def test_it_trains(renormalize: bool) -> None:
    import baracuda.frontends.torch as bt

    arrays = drawn(torch.float64, tokens=5, width=8, hidden=8, experts=4)
    for array in arrays.values():
        array.requires_grad_()
    y = bt.moe(**arrays, top_k=2, renormalize=renormalize)
    expected = defined(arrays, 2, renormalize=renormalize)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    dy = torch.randn_like(y)
    grads = torch.autograd.grad(y, arrays.values(), dy)
    wanted = torch.autograd.grad(expected, arrays.values(), dy)
    for name, grad, one in zip(arrays, grads, wanted, strict=True):
        torch.testing.assert_close(grad, one, rtol=1e-11, atol=1e-11, msg=lambda text, n=name: f"{n}: {text}")


def test_arrays_of_numpy_and_no_rows() -> None:
    arrays = {name: array.numpy() for name, array in drawn(torch.float32).items()}
    y = moe(**arrays, top_k=1)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    np.testing.assert_array_equal(y, moe(**tensors, top_k=1).numpy())
    assert moe(**drawn(torch.float32, tokens=0), top_k=2).shape == (0, 48)


def test_what_is_refused() -> None:
    arrays = drawn(torch.float32)
    with pytest.raises(InvalidProblem, match=r"'w_down' must have the shape \(6, 48, 40\), got \(6, 40, 48\)"):
        moe(**{**arrays, "w_down": arrays["w_up"]}, top_k=2)
    with pytest.raises(InvalidProblem, match="'x' must have 2 axes"):
        moe(**{**arrays, "x": arrays["x"][0]}, top_k=2)
    with pytest.raises(InvalidProblem, match="top_k <= experts"):
        moe(**arrays, top_k=7)
    with pytest.raises(Unsupported, match="'x' requires a gradient"):
        moe(**{**arrays, "x": arrays["x"].requires_grad_()}, top_k=2)
