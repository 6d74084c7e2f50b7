"""Reductions along rows: aten's softmax, log_softmax, native_layer_norm, sum, mean, norms and variances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from baracuda.runtime import Unsupported

from .kernels import (
    LAYER_NORM,
    LOG_SOFTMAX,
    LOG_SOFTMAX_BACKWARD,
    RMS_NORM,
    ROWS,
    SOFTMAX,
    SOFTMAX_BACKWARD,
    Exact,
    Kernel,
    fits,
    floats,
    suffix_mask,
)

_HALVES = (torch.float16, torch.bfloat16)


def softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    """aten::_softmax."""
    return _softmax(SOFTMAX, x, dim, half_to_float)


def log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    """aten::_log_softmax."""
    return _softmax(LOG_SOFTMAX, x, dim, half_to_float)


def softmax_backward(dy: Any, y: Any, dim: int, input_dtype: Any) -> Any:
    """aten::_softmax_backward_data."""
    return _softmax_backward(SOFTMAX_BACKWARD, dy, y, dim, input_dtype)


def log_softmax_backward(dy: Any, y: Any, dim: int, input_dtype: Any) -> Any:
    """aten::_log_softmax_backward_data."""
    return _softmax_backward(LOG_SOFTMAX_BACKWARD, dy, y, dim, input_dtype)


def _softmax(kernel: Kernel, x: Any, dim: int, half_to_float: bool) -> Any:
    floats(x)
    wide = x.float() if half_to_float else x
    return kernel.compute(wide if x.dim() else wide[None], softmax_axis=dim).view(x.shape)


def _softmax_backward(kernel: Kernel, dy: Any, y: Any, dim: int, input_dtype: Any) -> Any:
    floats(y)
    dx = kernel.compute(*(t if y.dim() else t[None] for t in (dy, y)), softmax_axis=dim)
    return dx.view(y.shape).to(input_dtype)


def layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    """aten::native_layer_norm: the result, and of each row the mean and the reciprocal deviation."""
    floats(x)
    axes = len(shape)
    fits(0 < axes <= x.dim() and list(x.shape[x.dim() - axes :]) == list(shape), "x ends in other axes")
    gamma, beta = _gains(x, weight, bias)
    return LAYER_NORM.compute(x, gamma, beta, norm_axes_mask=suffix_mask(x.dim(), axes), eps=eps)


def layer_norm_backward(
    dy: Any, x: Any, shape: Sequence[int], mu: Any, rstd: Any, weight: Any, bias: Any, mask: Sequence[bool]
) -> Any:
    """aten::native_layer_norm_backward; of the gain and the offset, gradients are sums over the batch."""
    floats(x)
    gamma, _ = _gains(x, weight, bias)
    sums = {f"d{name}_dtype": None if gamma is None else gamma.dtype for name in ("gamma", "beta")}
    bits = suffix_mask(x.dim(), len(shape))
    found = torch.ops.baracuda.layer_norm_backward.default(dy, x, gamma, mu, rstd, norm_axes_mask=bits, **sums)
    return _wanted(found, (x, weight, bias), mask)


def rms_norm(x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> tuple[Any, Any]:
    """aten::_fused_rms_norm: the result, and the reciprocal root of the mean square of each row."""
    floats(x)
    axes = len(shape)
    fits(0 < axes <= x.dim() and list(x.shape[x.dim() - axes :]) == list(shape), "x ends in other axes")
    least = torch.finfo(torch.float32 if x.dtype in _HALVES else x.dtype).eps if eps is None else eps
    y, rms = RMS_NORM.compute(x, fitted(weight, x), norm_axes_mask=suffix_mask(x.dim(), axes), eps=least)
    return y, rms.reciprocal()


def rms_norm_backward(
    dy: Any, x: Any, shape: Sequence[int], rrms: Any, weight: Any, mask: Sequence[bool]
) -> tuple[Any, ...]:
    """aten::_fused_rms_norm_backward."""
    floats(x)
    gamma, bits = fitted(weight, x), suffix_mask(x.dim(), len(shape))
    dtype = None if gamma is None else gamma.dtype
    call = torch.ops.baracuda.rms_norm_backward.default
    found = call(dy, x, gamma, rrms.reciprocal(), norm_axes_mask=bits, dgamma_dtype=dtype)
    return _wanted(found, (x, weight), mask)


def _wanted(found: Sequence[Any], like: Sequence[Any], mask: Sequence[bool]) -> tuple[Any, ...]:
    """Gradients, shaped as what they belong to; None for those that are not wanted."""
    return tuple(
        g.view(of.shape).to(of.dtype) if wanted and of is not None else None
        for g, of, wanted in zip(found, like, mask, strict=True)
    )


def _gains(x: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Both or neither, of the type of `x` or that of sums."""
    if weight is None is bias:
        return None, None
    if weight is None:
        weight = torch.ones_like(bias)
    if bias is None:
        bias = torch.zeros_like(weight)
    return fitted(weight, x), fitted(bias, x)


def fitted(gain: Any, x: Any) -> Any:
    """A gain of the type of `x`, or of f32 beside halves."""
    if gain is None or gain.dtype == x.dtype or (gain.dtype == torch.float32 and x.dtype in _HALVES):
        return gain
    return gain.to(torch.float32 if x.dtype in _HALVES else x.dtype)


def total(x: Any, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """aten::sum.dim_IntList."""
    return _reduced(0, x, dim, keepdim, dtype)


def average(x: Any, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """aten::mean.dim."""
    return _reduced(1, x, dim, keepdim, dtype)


def _reduced(which: int, x: Any, dim: Sequence[int] | None, keepdim: bool, dtype: Any) -> Any:
    """The sum or the mean. One of all elements has nothing beside it: torch's."""
    if not dim or x.dim() == 0 or x.numel() == 0:
        raise Exact
    if dtype is not None and dtype != x.dtype:
        if not (x.dtype in _HALVES and dtype == torch.float32):
            x = x.to(dtype)
    else:
        dtype = x.dtype
    floats(x)
    rank = x.dim()
    axes = [axis + rank if axis < 0 else axis for axis in dim]
    fits(len({*axes}) == len(axes) and min(axes) >= 0 and max(axes) < rank, "dim names an axis twice, or one too many")
    kept = [axis for axis in range(rank) if axis not in axes]
    rows = x if not kept or kept[-1] == len(kept) - 1 else x.permute(*kept, *sorted(axes))
    results = ROWS.compute(rows, axes_mask=suffix_mask(rank, len(axes)), total_dtype=dtype, average_dtype=dtype)
    shape = [1 if axis in axes else x.shape[axis] for axis in range(rank)] if keepdim else [x.shape[a] for a in kept]
    return results[which].view(shape)


def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """aten::linalg_vector_norm; maxima and counts are exact, whoever computes them."""
    if not dim or ord in (0, math.inf, -math.inf):
        raise Exact
    floats(x)
    if ord not in (1, 2):
        raise Unsupported(f"the norm is of order {ord}; needs 0, 1, 2 or infinity")
    wide = _widened(x if dtype is None else x.to(dtype))
    sums = total(wide.abs() if ord == 1 else wide * wide, dim, keepdim)
    return (sums if ord == 1 else sums.sqrt()).to(dtype or x.dtype)


def variance(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """aten::var.correction."""
    return variance_and_mean(x, dim, correction=correction, keepdim=keepdim)[0]


def deviation(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """aten::std.correction."""
    return deviation_and_mean(x, dim, correction=correction, keepdim=keepdim)[0]


def deviation_and_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """aten::std_mean.correction."""
    found, mean = variance_and_mean(_widened(x), dim, correction=correction, keepdim=keepdim)
    return found.sqrt().to(x.dtype), mean.to(x.dtype)


def variance_and_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """aten::var_mean.correction, in two passes."""
    if not dim:
        raise Exact
    floats(x)
    wide = _widened(x)
    mean = average(wide, dim, True)
    squares = total((wide - mean).square(), dim, keepdim)
    count = x.numel() // max(mean.numel(), 1) - (1 if correction is None else correction)
    shown = mean if keepdim else mean.view(squares.shape)
    return (squares / max(count, 0)).to(x.dtype), shown.to(x.dtype)


def _widened(x: Any) -> Any:
    return x.float() if x.dtype in _HALVES else x
