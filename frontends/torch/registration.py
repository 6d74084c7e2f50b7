"""From a package of generated plans to ops of a torch namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import torch

import baracuda.runtime as rt

from .autocast import cast
from .gradient import Derivative, refuse
from .op import Op
from .signature import Signature

_DEVICES = ("cuda", "cpu")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)  # outputs lie in memory as inputs do
_LIBRARIES: list[Any] = []  # what is registered goes with its library


def register(package: ModuleType, namespace: str) -> tuple[str, ...]:
    """Define the op of every plan of a generated `package` as ``torch.ops.<namespace>.<op>``; returns their names."""
    library = torch.library.Library(namespace, "FRAGMENT")
    _LIBRARIES.append(library)
    signatures = {s.name: s for s in map(Signature, _plans(package))}
    for signature in signatures.values():
        _define(library, namespace, signature)
    backwards = {s.plan.GRADIENT.of: s for s in signatures.values() if s.plan.GRADIENT is not None}
    for name, signature in signatures.items():
        if signature.is_functional:
            keep, go_back = _autograd(namespace, signature, backwards.get(name))
            torch.library.register_autograd(f"{namespace}::{name}", go_back, setup_context=keep, lib=library)
        else:
            library.impl(name, partial(_call_below, name, _overload(namespace, name)), "Autograd")
    return tuple(signatures)


def _plans(package: ModuleType) -> Iterator[type[rt.Plan[Any]]]:
    for name in package.MODULES:
        plan = getattr(package, name)
        if issubclass(plan, rt.Plan) and "OP" in vars(plan):  # not those that narrow another one's kernels
            yield plan


def _define(library: Any, namespace: str, signature: Signature) -> None:
    op, name = Op(signature), signature.name
    library.define(signature.schema, tags=_TAGS)
    torch.library.register_fake(f"{namespace}::{name}", op.trace, lib=library)
    overload = _overload(namespace, name)
    for device in _DEVICES:
        key = device.upper()
        library.impl(name, op.compute, key)
        library.impl(name, partial(_cast_and_call, signature, overload, device), f"Autocast{key}")


def _overload(namespace: str, name: str) -> Any:
    return getattr(getattr(torch.ops, namespace), name).default


def _cast_and_call(signature: Signature, overload: Any, device: str, *tensors: Any, **given: Any) -> Any:
    with torch.autocast(device, enabled=False):
        return overload(*cast(signature, signature.named(tensors), device), **given)


def _call_below(name: str, overload: Any, *tensors: Any, **given: Any) -> Any:
    """An op that changes its inputs, which torch has no formula for."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        refuse(f"{name} has no gradient; call it under torch.no_grad()")
    with torch._C._AutoDispatchBelowAutograd():
        return overload(*tensors, **given)


def _autograd(namespace: str, signature: Signature, backward: Signature | None) -> tuple[Any, Callable[..., Any]]:
    if backward is None:
        return None, lambda ctx, *grads: refuse(f"{signature.name} has no gradient")
    derivative = Derivative(signature, backward, _overload(namespace, backward.name))
    return derivative.keep, derivative.go_back
