"""Generated kernels as functions of jax arrays: ``baracuda.frontends.jax.<op>``.

Each op of `baracuda.generated` is a function here; `functions` makes those of another package. See `Function` for what
a call takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType, ModuleType

import baracuda.generated
from baracuda.ops.signature import Signature, plans_of

from ..wiring import wirings
from .function import Function

__all__ = ["Function", "functions"]


def functions(package: ModuleType) -> Mapping[str, Function]:
    """A function for each op of a package that `baracuda-gen generate` has written, by the op's name."""
    signatures = {plan.OP: Signature(plan) for plan in plans_of(package)}
    made = {name: Function(signature) for name, signature in signatures.items()}
    for name, wiring in wirings(signatures).items():
        made[name].derive(wiring, made[wiring.backward.name])
    return MappingProxyType(made)


@cache
def _ours() -> Mapping[str, Function]:
    return functions(baracuda.generated)


def __getattr__(name: str) -> Function:
    if name.startswith("_") or (found := _ours().get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; ops are {', '.join(_ours())}")
    return found


def __dir__() -> list[str]:
    return [*__all__, *_ours()]
