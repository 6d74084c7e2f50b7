"""Invariant: what takes the place of a module or a function of torch's gives the same values and gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
ft = pytest.importorskip("baracuda.frontends.torch")
F = torch.nn.functional

SHAPES = {"q": (2, 4, 5, 16), "k": (2, 2, 7, 16), "v": (2, 2, 7, 24)}
MASKS: dict[str, Any] = {
    "none": lambda: None,
    "truths": lambda: torch.rand(5, 7) < 0.7,
    "numbers": lambda: torch.randn(2, 1, 5, 7, dtype=torch.float64),
    "learnt": lambda: torch.randn(4, 5, 7, dtype=torch.float64, requires_grad=True),
}


def leaves(*shapes: tuple[int, ...]) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def same(ours: Any, theirs: Any, inputs: list[Any]) -> None:
    """The same values, and the same gradients of a weighted sum of them."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(theirs)
    found = [torch.autograd.grad((y * weights).sum(), inputs) for y in (ours, theirs)]
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("mask", MASKS)
def test_attention_is_torchs(mask: str) -> None:
    q, k, v = leaves(*SHAPES.values())
    added = MASKS[mask]()
    if mask == "truths":
        added[:, 0] = True  # torch says nothing of a query that sees no key
    inputs = [q, k, v, *([added] if mask == "learnt" else [])]
    ours = ft.scaled_dot_product_attention(q, k, v, added, enable_gqa=True)
    same(ours, F.scaled_dot_product_attention(q, k, v, added, enable_gqa=True), inputs)


def test_masks_are_broadcast_over_batches() -> None:
    (q,) = leaves((2, 3, 2, 5, 8))
    mask = torch.randn(2, 1, 1, 5, 5, dtype=torch.float64)
    same(ft.scaled_dot_product_attention(q, q, q, mask), F.scaled_dot_product_attention(q, q, q, mask), [q])


def test_masks_of_integers_are_refused() -> None:
    """0 and 1 could be truths, or be added."""
    (q,) = leaves((1, 2, 5, 8))
    with pytest.raises(ValueError, match="needs torch"):
        ft.scaled_dot_product_attention(q, q, q, torch.ones(5, 5, dtype=torch.int64))


@pytest.mark.parametrize(("d_k", "d_v"), [(0, 4), (4, 0)])
def test_attention_of_empty_heads(d_k: int, d_v: int) -> None:
    """Scores of no features are all 0, so y is the mean of the values."""
    q, k, v = torch.ones(1, 2, 3, d_k), torch.ones(1, 2, 5, d_k), torch.rand(1, 2, 5, d_v)
    ours = ft.scaled_dot_product_attention(q, k, v)
    assert torch.allclose(ours, v.mean(dim=2, keepdim=True).expand(1, 2, 3, d_v))


@pytest.mark.parametrize("axes", [2, 3, 5])
def test_attention_takes_any_number_of_batches(axes: int) -> None:
    lead = (2, 1, 3)[: axes - 2]
    q, k, v = leaves((*lead, 5, 8), (*lead, 7, 8), (*lead, 7, 8))
    ours = ft.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    same(ours, F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), [q, k, v])


def test_attention_of_wide_heads() -> None:
    q, k, v = leaves((1, 1, 3, 300), (1, 1, 3, 300), (1, 1, 3, 8))
    same(ft.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v), [q, k, v])


def test_attention_keeps_the_order_that_projections_leave() -> None:
    q, k, v = (t.transpose(1, 2) for t in leaves((2, 5, 4, 16), (2, 7, 4, 16), (2, 7, 4, 16)))
    assert ft.scaled_dot_product_attention(q, k, v).transpose(1, 2).is_contiguous()


def test_attention_under_autocast_is_of_halves() -> None:
    q, k, v = (t.detach().float() for t in leaves(*SHAPES.values()))
    with torch.autocast("cpu", torch.bfloat16):
        assert ft.scaled_dot_product_attention(q, k, v, enable_gqa=True).dtype == torch.bfloat16


def test_what_attention_refuses() -> None:
    q, k, v = leaves(*SHAPES.values())
    with pytest.raises(NotImplementedError, match=r"dropout_p is 0\.1; there is no kernel with dropout, pass 0"):
        ft.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
    with pytest.raises(ValueError, match="is_causal and attn_mask are both given"):
        ft.scaled_dot_product_attention(q, k, v, MASKS["truths"](), is_causal=True)
    with pytest.raises(ValueError, match="query has 4 heads, key has 2; pass enable_gqa=True"):
        ft.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("eps", [None, 1e-3])
@pytest.mark.parametrize("affine", [False, True])
def test_rms_norm_is_torchs(affine: bool, eps: float | None) -> None:
    theirs = torch.nn.RMSNorm((3, 8), eps, affine, dtype=torch.float64)
    ours = ft.RMSNorm((3, 8), eps, affine, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    (x,) = leaves((5, 3, 8))
    same(ours(x), theirs(x), [x])
    if affine:
        ours(x).sum().backward()
        theirs(x).sum().backward()
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    with pytest.raises(ValueError, match=r"x must end in the axes \(3, 8\), got shape \(4, 8\)"):
        ours(torch.rand(4, 8, dtype=torch.float64))


def test_the_usual_eps_is_torchs_for_halves_too() -> None:
    x = torch.rand(4, 8, dtype=torch.bfloat16) * 1e-2
    torch.testing.assert_close(ft.rms_norm(x, (8,)), F.rms_norm(x, (8,)))


@pytest.mark.parametrize("silu", [False, True])
def test_convolution_is_torchs_with_its_end_cut_off(silu: bool) -> None:
    ours = ft.CausalConv1d(6, 4, silu=silu, dtype=torch.float64)
    theirs = torch.nn.Conv1d(6, 6, 4, groups=6, padding=3, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    (x,) = leaves((2, 6, 9))
    expected = theirs(x)[..., :9]
    same(ours(x), F.silu(expected) if silu else expected, [x])


@pytest.mark.parametrize("kernel_size", [1, 9])
def test_convolution_has_two_to_eight_taps(kernel_size: int) -> None:
    assert str(ft.CausalConv1d(6, 4, silu=True)).endswith("silu=True)")
    with pytest.raises(ValueError, match=f"kernel_size is {kernel_size}; needs 2 to 8"):
        ft.CausalConv1d(6, kernel_size)


def test_convolution_goes_on_step_by_step() -> None:
    conv = ft.CausalConv1d(6, 4, silu=True, dtype=torch.float64)
    (x,) = leaves((2, 6, 9))
    whole = conv(x)
    y, states = conv.forward_with_states(x[..., :7])
    states = states.detach().clone()
    later = [conv.step(x[..., t : t + 1].detach(), states) for t in (7, 8)]
    torch.testing.assert_close(torch.cat([y, *later], 2), whole)


def test_modules_compile_without_a_break() -> None:
    torch._dynamo.reset()
    norm, conv = ft.RMSNorm(8), ft.CausalConv1d(4, 3, silu=True)

    def block(x: Any) -> Any:
        y = conv(norm(x))
        return ft.scaled_dot_product_attention(y, y, y, is_causal=True)

    x = torch.rand(2, 4, 8, requires_grad=True)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(x), block(x), rtol=0, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(f(x).sum(), [x]) for f in (compiled, block)), rtol=0, atol=0)
