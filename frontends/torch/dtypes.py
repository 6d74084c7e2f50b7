"""Element types and torch dtypes."""

from __future__ import annotations

from typing import Any

import torch

from baracuda.runtime import ElementKind, Unsupported

# torch and NumPy spell all of them alike; an old torch lacks some.
_TORCH: dict[ElementKind, Any] = {k: dtype for k in ElementKind if (dtype := getattr(torch, str(k.row.numpy), None))}
_KINDS = {dtype: kind for kind, dtype in _TORCH.items()}


def kind_of(dtype: Any) -> ElementKind:
    """The element type of a torch.dtype."""
    if (kind := _KINDS.get(dtype)) is None:
        raise Unsupported(f"no kernels for {dtype}; there are some for {', '.join(map(str, _KINDS))}")
    return kind


def dtype_of(kind: ElementKind) -> Any:
    """The torch.dtype of an element type."""
    return _TORCH[kind]
