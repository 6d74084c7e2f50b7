"""From a package of generated plans to ops of a torch namespace."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from baracuda.ops.signature import plans_of
from baracuda.runtime import InvalidProblem, Plan

from ..wiring import wirings
from .autocast import casting
from .autograd import tracked
from .gradient import Derivative
from .op import Op, place_of
from .signature import Signature

_DEVICES = ("cuda", "cpu")
# Outputs lie in memory as inputs do, so compiled code gives what was traced; an old torch knows only of the order.
_STRIDES = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
_TAGS = (torch.Tag.pt2_compliant_tag, _STRIDES)
_LIBRARIES: list[Any] = []  # what is registered goes with its library
_PLANS: dict[tuple[str, str], type[Plan[Any]]] = {}  # of ops, by namespace and name


def register(package: ModuleType, namespace: str) -> tuple[str, ...]:
    """Define the op of every plan of a generated `package` as ``torch.ops.<namespace>.<op>``; returns their names.

    Ops that are defined stay as they are; InvalidProblem if one of the same name is not of the same plan.
    """
    signatures = {s.name: s for s in map(Signature, plans_of(package))}
    new = {name: s for name, s in signatures.items() if _is_new(namespace, s)}
    library = torch.library.Library(namespace, "FRAGMENT")
    _LIBRARIES.append(library)
    for name, signature in new.items():
        _define(library, namespace, signature)
        _PLANS[namespace, name] = signature.plan
    wired = wirings(signatures)
    for name, signature in new.items():
        wiring = wired.get(name)
        derivative = Derivative(wiring, _overload(namespace, wiring.backward.name)) if wiring else None
        call = tracked(signature, _overload(namespace, name), derivative)
        library.impl(name, call, "Autograd", with_keyset=True)
    return tuple(signatures)


def _is_new(namespace: str, signature: Signature) -> bool:
    """Whether the op is still to be defined."""
    name, plan = f"torch.ops.{namespace}.{signature.name}", signature.plan
    earlier = _PLANS.get((namespace, signature.name))
    if earlier is not plan and hasattr(getattr(torch.ops, namespace), signature.name):
        whose = f"of {earlier.__module__}" if earlier else "not one of ours"
        raise InvalidProblem(f"{name} is {whose}, not of {plan.__module__}; choose another namespace")
    return earlier is None


def _define(library: Any, namespace: str, signature: Signature) -> None:
    op, name = Op(signature), signature.name
    library.define(signature.schema, tags=_TAGS)
    torch.library.register_fake(f"{namespace}::{name}", op.trace, lib=library)
    overload = _overload(namespace, name)
    if all(a.optional for a in signature.inputs):
        library.impl(name, _by_device(signature, overload), "BackendSelect", with_keyset=True)
    for device in _DEVICES:
        key = device.upper()
        library.impl(name, op.compute, key)
        library.impl(name, casting(signature, overload, device), f"Autocast{key}")


def _by_device(signature: Signature, overload: Any) -> Callable[..., Any]:
    """The op where no tensor may tell its device: the one called for does."""

    def call(_keys: Any, *tensors: Any, **keywords: Any) -> Any:
        _, device = place_of(tensors, keywords.get("device") if signature.takes_device else None)
        key = getattr(torch._C.DispatchKey, torch._C._dispatch_key_for_device(device.type))
        return overload.redispatch(torch._C.DispatchKeySet(key), *tensors, **keywords)

    return call


def _overload(namespace: str, name: str) -> Any:
    return getattr(getattr(torch.ops, namespace), name).default
