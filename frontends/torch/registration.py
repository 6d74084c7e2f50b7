"""From a package of generated plans to ops of a torch namespace."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from baracuda.ops.signature import plans_of

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


def register(package: ModuleType, namespace: str) -> tuple[str, ...]:
    """Define the op of every plan of a generated `package` as ``torch.ops.<namespace>.<op>``; returns their names."""
    library = torch.library.Library(namespace, "FRAGMENT")
    _LIBRARIES.append(library)
    signatures = {s.name: s for s in map(Signature, plans_of(package))}
    for signature in signatures.values():
        _define(library, namespace, signature)
    wired = wirings(signatures)
    for name, signature in signatures.items():
        wiring = wired.get(name)
        derivative = Derivative(wiring, _overload(namespace, wiring.backward.name)) if wiring else None
        call = tracked(signature, _overload(namespace, name), derivative)
        library.impl(name, call, "Autograd", with_keyset=True)
    return tuple(signatures)


def _define(library: Any, namespace: str, signature: Signature) -> None:
    op, name = Op(signature), signature.name
    library.define(signature.schema, tags=_TAGS)
    torch.library.register_fake(f"{namespace}::{name}", op.trace, lib=library)
    overload = _overload(namespace, name)
    if signature.takes_device:
        library.impl(name, _by_device(overload), "BackendSelect", with_keyset=True)
    for device in _DEVICES:
        key = device.upper()
        library.impl(name, op.compute, key)
        library.impl(name, casting(signature, overload, device), f"Autocast{key}")


def _by_device(overload: Any) -> Callable[..., Any]:
    """The op where no tensor may tell its device: the one called for does."""

    def call(_keys: Any, *tensors: Any, **keywords: Any) -> Any:
        _, device = place_of(tensors, keywords.get("device"))
        key = getattr(torch._C.DispatchKey, torch._C._dispatch_key_for_device(device.type))
        return overload.redispatch(torch._C.DispatchKeySet(key), *tensors, **keywords)

    return call


def _overload(namespace: str, name: str) -> Any:
    return getattr(getattr(torch.ops, namespace), name).default
