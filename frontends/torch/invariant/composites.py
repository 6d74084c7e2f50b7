"""What torch composes of other ops, in ways that depend on strides: aten's linear, rms_norm and attention.

These stand where autograd records, so they call ops that have gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from baracuda.runtime import Unsupported

from .. import functional
from .kernels import LINEAR, PRODUCTS, Exact, fits, floats
from .rows import fitted

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_HALF = 2
_BYTES = 16  # multiples of which the copy engine of Hopper addresses


def _plain(*tensors: Any) -> None:
    """Raise Exact for what composes of ops that arrive here one by one: subclasses, and torch.func's transforms."""
    if torch._C._are_functorch_transforms_active() or any(t is not None and type(t) not in _PLAIN for t in tensors):
        raise Exact


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """aten::linear. Of any rank and strides it is one product of matrices, so that the bias is always added alike."""
    _plain(x, weight, bias)
    floats(x, weight)
    if x.dim() == 0 or weight.dim() != 2 or not (bias is None or bias.dim() == 1):
        raise Exact
    fits(x.shape[-1] == weight.shape[1], "x and weight have other features")
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if _recorded(x, weight, bias):
        y = torch.mm(rows, weight.t()) if bias is None else torch.addmm(bias, rows, weight.t())
    elif bias is None:
        y = PRODUCTS.compute(rows.unsqueeze(0), weight.t().unsqueeze(0))
    else:
        y = LINEAR.compute(rows, weight, bias, kind="identity")
    return y.view(*x.shape[:-1], weight.shape[0])


def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """aten::rms_norm."""
    _plain(x, weight)
    floats(x)
    axes = len(shape)
    fits(0 < axes <= x.dim() and list(x.shape[x.dim() - axes :]) == list(shape), "x ends in other axes")
    return functional.rms_norm(x, shape, fitted(weight, x), eps)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """aten::scaled_dot_product_attention."""
    _plain(query, key, value, attn_mask)
    floats(query, key, value)
    if dropout_p:
        raise Unsupported(f"dropout_p is {dropout_p}; needs 0")
    fits(query.dim() >= 2 and query.dim() == key.dim() == value.dim(), "axes differ")
    q, k, v = (_even(t) for t in (query, key, value))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal, scale, enable_gqa)


def _even(tensor: Any) -> Any:
    """Itself or a copy, so that which kernel serves halves depends on their sizes, not on where in memory they are."""
    size, inner = tensor.element_size(), tensor.shape[-1]
    if size != _HALF or inner * size % _BYTES:
        return tensor
    steps = [step for step, extent in zip(tensor.stride()[:-1], tensor.shape, strict=False) if extent > 1]
    if tensor.stride(-1) == 1 and tensor.data_ptr() % _BYTES == 0 and not any(step * size % _BYTES for step in steps):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _recorded(*tensors: Any) -> bool:
    """Whether autograd records a call of these, or a mode sees torch's ops."""
    needed: bool = torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors)
    return needed or forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack() > 0
