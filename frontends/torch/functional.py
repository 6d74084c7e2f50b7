"""Functions with the signatures of torch's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

_GROUPED = ((2, 3), (3, 2), (2, 2), (3, 3))  # axes of the matrices
_FLASH = 256  # the widest query, key or value that flash_sdpa takes


def rms_norm(x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    """As torch.nn.functional.rms_norm."""
    axes = len(normalized_shape)
    if tuple(x.shape[x.dim() - axes :]) != tuple(normalized_shape) or not axes:
        raise ValueError(f"x must end in the axes {tuple(normalized_shape)}, got shape {tuple(x.shape)}")
    mask = (1 << axes) - 1 << x.dim() - axes
    epsilon = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps if eps is None else eps
    return torch.ops.baracuda.rms_norm.default(x, weight, norm_axes_mask=mask, eps=epsilon)[0]


def grouped_mm(mat_a: Any, mat_b: Any, *, offs: Any = None) -> Any:
    """As torch.nn.functional.grouped_mm: products of groups, which end at `offs` along the axis that they share out.

    Rows [tokens, k] times [groups, k, n] give [tokens, n]; [groups, m, k] times columns [k, tokens] give [m, tokens];
    [m, tokens] times [tokens, n] give [groups, m, n], a sum for each group, 0 for an empty one. Without `offs`, batches
    [groups, m, k] and [groups, k, n] give [groups, m, n]. f64, f32, f16 and bf16, offs of int32 or int64, any strides.
    Rows and columns that belong to no group are 0. Gradients of both are products of these kinds.
    """
    ops, axes = torch.ops.baracuda, (mat_a.dim(), mat_b.dim())
    if axes not in _GROUPED or (axes == (3, 3)) != (offs is None):
        offs_is = "None" if offs is None else "given"
        told = f"shapes are {tuple(mat_a.shape)} and {tuple(mat_b.shape)}, offs is {offs_is}"
        raise ValueError(f"{told}; needs matrices or batches of matrices, and offs unless both are batches")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise ValueError(f"mat_a has {mat_a.shape[-1]} columns, mat_b {mat_b.shape[-2]} rows; needs as many")
    if axes == (2, 3):
        return ops.grouped_mm.default(mat_a, mat_b.mT, offs)
    if axes == (3, 2):
        return ops.grouped_mm.default(mat_b.mT, mat_a, offs).mT
    return ops.dense_gemm.default(mat_a, mat_b) if offs is None else ops.k_grouped_mm.default(mat_a, mat_b, offs)


def moe(x: Any, logits: Any, w_gate: Any, w_up: Any, w_down: Any, *, top_k: int, renormalize: bool = True) -> Any:
    """As baracuda.ops.moe, with gradients with respect to all arrays, none of which is added up atomically."""
    ops, experts = torch.ops.baracuda, logits.shape[1]
    weights, ids = ops.topk_softmax.default(logits, top_k=top_k, renormalize=renormalize)
    rows, places, ends = ops.moe_permute.default(x, ids, experts=experts)
    inner = ops.grouped_swiglu.default(rows, w_gate, w_up, ends)
    return ops.moe_combine.default(ops.grouped_mm.default(inner, w_down, ends), places, weights)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """As torch.nn.functional.scaled_dot_product_attention, without dropout; a query that sees no key gives 0."""
    if dropout_p:
        raise NotImplementedError(f"dropout_p is {dropout_p}; there is no kernel with dropout, pass 0")
    if is_causal and attn_mask is not None:
        raise ValueError("is_causal and attn_mask are both given; add the one to the other")
    query, key, value = _autocast(query, key, value)
    q, k, v = (_four_axes(t) for t in (query, key, value))
    if q.shape[1] != k.shape[1] and not enable_gqa:
        raise ValueError(f"query has {q.shape[1]} heads, key has {k.shape[1]}; pass enable_gqa=True to share keys")
    factor = 1 / math.sqrt(max(q.shape[3], 1)) if scale is None else scale
    shape = *query.shape[:-1], key.shape[-2]
    y = _attention(q, k, v, None if attn_mask is None else (attn_mask, shape), factor, is_causal)
    return y if query.dim() == 4 else y.reshape(*query.shape[:-1], value.shape[-1])


def _attention(q: Any, k: Any, v: Any, masked: tuple[Any, Any] | None, scale: float, is_causal: bool) -> Any:
    """Without materialising the attention matrix, unless the mask is trainable, or heads are too wide or empty.

    `masked` is a mask and the shape that it is expanded to.
    """
    is_learnt = masked is not None and masked[0].requires_grad and torch.is_grad_enabled()
    sizes = q.shape[3], v.shape[3]
    if is_learnt or max(sizes) > _FLASH or min(sizes) < 1:
        mask = None if masked is None else _added(*masked, q.dtype)
        return torch.ops.baracuda.sdpa.default(q, k, v, mask, scale=scale, is_causal=is_causal)[1]
    sums = torch.float64 if q.dtype == torch.float64 else torch.float32
    mask = None if masked is None else _added(*masked, sums)
    return torch.ops.baracuda.flash_sdpa.default(q, k, v, mask, scale=scale, is_causal=is_causal)[0]


def _autocast(*tensors: Any) -> tuple[Any, ...]:
    """In autocast's type for attention."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind) or any(t.dtype == torch.float64 for t in tensors):
        return tensors
    return tuple(t.to(torch.get_autocast_dtype(kind)) for t in tensors)


def _four_axes(tensor: Any) -> Any:
    """Batch, heads, sequence, features: with one batch, or all batches flattened."""
    if tensor.dim() < 2:
        raise ValueError(f"queries, keys and values have at least 2 axes, got shape {tuple(tensor.shape)}")
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor if tensor.dim() == 4 else tensor.flatten(0, -4)


def _added(mask: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The additive mask, converted before it is expanded; for a bool mask, -inf where it is false."""
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        raise ValueError(f"attn_mask is of {mask.dtype}; needs torch.bool, True where a key is seen, or floats to add")
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -math.inf)
    return _four_axes(mask.to(dtype).expand(shape))
