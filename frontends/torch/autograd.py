"""Autograd for an op: saves what the derivative needs, or rejects the call.

Like torch.library.register_autograd, without its per-call overhead for arbitrary ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from .gradient import Derivative, refuse
from .signature import Signature


def tracked(signature: Signature, overload: Any, derivative: Derivative | None) -> Callable[..., Any]:
    """The op at the dispatch key Autograd."""
    name, changes = signature.name, not signature.is_functional
    recorded = _function(name, overload, derivative)

    def call(keys: Any, *tensors: Any, **keywords: Any) -> Any:
        needed = torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors)
        if needed and changes:
            refuse(f"{name} has no gradient; call it under torch.no_grad()")
        if changes or not (needed or forward_ad._current_level >= 0):
            return _compute(overload, keys, keywords, tensors)
        if torch._C._are_functorch_transforms_active():
            refuse(f"{name} is differentiated by torch.autograd alone, not by the transforms of torch.func")
        return recorded.apply(keys, keywords, *tensors)

    return call


def _compute(overload: Any, keys: Any, keywords: Any, tensors: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return overload.redispatch(keys & torch._C._after_autograd_keyset, *tensors, **keywords)


def _function(name: str, overload: Any, derivative: Derivative | None) -> Any:
    class Call(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keys: Any, keywords: Any, *tensors: Any) -> Any:
            output = _compute(overload, keys, keywords, tensors)
            if derivative is not None:
                derivative.keep(ctx, ctx.needs_input_grad[2:], tensors, keywords, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if derivative is None:
                refuse(f"{name} has no gradient")
            return None, None, *derivative.go_back(ctx, ctx.needs_input_grad[2:], grads)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            refuse(f"{name} has no derivative in forward mode")

    return Call
