"""Torch ops round factors to TF32 where that was asked for, and their gradients do."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


def test_products_and_gradients_round_only_where_asked() -> None:
    import baracuda.frontends.torch as bt

    torch.manual_seed(0)
    x, w = torch.randn(20, 64), torch.randn(24, 64)
    half = torch.randn(20, 64).bfloat16()
    exact, norm = x.double() @ w.double().T, bt.rms_norm(x, (64,))

    def results() -> tuple[float, float]:
        of_x = x.clone().requires_grad_()
        y = torch.ops.baracuda.linear(of_x, w, None, kind="identity")
        y.sum().backward()
        of_gradient = of_x.grad.double() - w.double().sum(0)
        return float((y.detach().double() - exact).abs().max()), float(of_gradient.abs().max())

    whole = results()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert results() == whole
        bt.use_tf32(True)
        rounded = results()
        torch.ops.baracuda.linear(half, half, None, kind="identity")  # of which nothing is rounded
        assert torch.equal(bt.rms_norm(x, (64,)), norm)
    finally:
        bt.use_tf32(False)
        torch.backends.cuda.matmul.allow_tf32 = False
    assert results() == whole
    assert max(whole) < 1e-4 < 1e-3 < min(rounded)
