"""What autocast does to an op's inputs.

Kernels accumulate in a wide type, so tensors stay as they are where the op takes them: a norm of f16 data is not
widened, and its f32 gain not narrowed. Inputs whose types must agree and do not are cast to autocast's type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

import baracuda.runtime as rt

from .dtypes import dtype_of, kind_of
from .signature import Signature


def casting(signature: Signature, overload: Any, device: str) -> Callable[..., Any]:
    """The op at autocast's dispatch key of a device type."""
    within = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    within = within | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def call(*tensors: Any, **keywords: Any) -> Any:
        dtypes = tuple([None if t is None else t.dtype for t in tensors])
        targets = _types(signature, dtypes, torch.get_autocast_dtype(device))
        with torch._C._ExcludeDispatchKeyGuard(within):
            return overload(*[t if d is None else t.to(d) for t, d in zip(tensors, targets, strict=True)], **keywords)

    return call


@lru_cache(maxsize=1024)
def _types(signature: Signature, dtypes: tuple[Any, ...], usual: Any) -> tuple[Any, ...]:
    """For inputs of given types, the types that they are cast to; None for those that stay."""
    inputs = list(zip(signature.inputs, dtypes, strict=False))  # fewer, if the last are left out
    element_dtypes = {d for a, d in inputs if a.dtypes == ("T",) and d is not None and d.is_floating_point}
    if len(element_dtypes) > 1 and torch.float64 not in element_dtypes:
        element_dtypes = {usual}
    if len(element_dtypes) != 1:
        return (None,) * len(dtypes)
    element = kind_of(element_dtypes.pop())
    return tuple(_fitted(a, d, element) if d is not None and d.is_floating_point else None for a, d in inputs)


def _fitted(argument: rt.Argument, dtype: Any, element: rt.ElementKind) -> Any:
    allowed = [dtype_of(kind) for kind in argument.elements(element)]
    return None if dtype in allowed else allowed[0]
