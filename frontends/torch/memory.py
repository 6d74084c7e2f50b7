"""The memory format of outputs: that of the first input, which suits kernels and following reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def fitting(tensor: Any, layout: str) -> Any:
    """`tensor` in a form that kernels with `layout` can read: itself, or a copy."""
    if tensor is None or tensor.dim() == 0 or (layout == "inner" and tensor.stride(-1) == 1):
        return tensor
    return tensor.contiguous()


def order_of(tensor: Any) -> tuple[int, ...] | None:
    """The axes from slowest to fastest in memory; None for row-major order, and if elements overlap."""
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    if any(step == 0 and extent != 1 for step, extent in zip(strides, tensor.shape, strict=True)):
        return None
    return tuple(sorted(range(tensor.dim()), key=lambda axis: -strides[axis]))


def empty(shape: Sequence[Any], order: tuple[int, ...] | None, dtype: Any, device: Any) -> Any:
    """An output array, with its axes in the `order` of an input of the same rank."""
    if order is None or len(order) != len(shape):
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_permuted(shape, order, dtype=dtype, device=device)
