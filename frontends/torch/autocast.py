"""What an op's inputs become where autocast is on.

Kernels add in a wide type whatever their elements are, so tensors stay as they are where the op takes them: a norm of
halves is not made wide, and its gain of singles not narrow. Inputs that must agree and do not become what autocast
says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from baracuda.runtime import ElementKind

from .dtypes import dtype_of, kind_of
from .signature import Signature, Tensors


def cast(signature: Signature, tensors: Tensors, device_type: str) -> list[Any]:
    """The inputs, with the types that the op takes."""
    floating = {n: t for n, t in tensors.items() if t is not None and t.is_floating_point()}
    held = {t.dtype for n, t in floating.items() if signature.plan.ARGUMENTS[n].dtypes == ("T",)}
    if len(held) > 1 and torch.float64 not in held:
        held = {torch.get_autocast_dtype(device_type)}
    if len(held) != 1:
        return list(tensors.values())
    element = kind_of(held.pop())
    allowed = {n: signature.plan.ARGUMENTS[n].elements(element) for n in floating}
    return [_fitted(t, allowed[n]) if n in floating else t for n, t in tensors.items()]


def _fitted(tensor: Any, kinds: Iterable[ElementKind]) -> Any:
    allowed = [dtype_of(kind) for kind in kinds]
    return tensor if tensor.dtype in allowed else tensor.to(allowed[0])
