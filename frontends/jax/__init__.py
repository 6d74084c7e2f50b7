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

from .. import require
from ..wiring import wirings

require("jax")

from .function import Function  # noqa: E402

__all__ = ["Function", "functions"]


def functions(package: ModuleType) -> Mapping[str, Function]:
    """A function for each op of a package that `baracuda-gen generate` has written, by the op's name."""
    signatures = {plan.OP: Signature(plan) for plan in plans_of(package)}
    by_name = {name: Function(signature) for name, signature in signatures.items()}
    for name, wiring in wirings(signatures).items():
        by_name[name].derive(wiring, by_name[wiring.backward.name])
    return MappingProxyType(by_name)


@cache
def _generated() -> Mapping[str, Function]:
    return functions(baracuda.generated)


def __getattr__(name: str) -> Function:
    if name.startswith("_") or (function := _generated().get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; ops are {', '.join(_generated())}")
    return function


def __dir__() -> list[str]:
    return [*__all__, *_generated()]
