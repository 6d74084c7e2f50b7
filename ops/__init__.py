"""Generated kernels as functions that allocate their results: `y, rms = baracuda.ops.rms_norm(x, gamma)`.

Each op of `baracuda.generated` is a function here, made on first use; `functions` makes those of another package. See
`Function` for the calling convention. `matmul` and `moe` are made of several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from baracuda.runtime import InvalidProblem
from baracuda.runtime.values import short_repr

from .function import Function
from .signature import OfEachOp

__all__ = ["Function", "functions"]
_COMPOSED = {"matmul": "products", "moe": "experts"}  # functions made of ops -> where they are


def functions(package: ModuleType) -> Mapping[str, Function]:
    """A function for each op of a package that `baracuda-gen generate` has written, by op name:
    `functions(mine)["row_center"](x)`. InvalidProblem for anything else.
    """
    if not issubclass(type(package), ModuleType) or not hasattr(package, "MODULES"):
        name = getattr(package, "__name__", None) if issubclass(type(package), ModuleType) else package
        got = short_repr(name)
        raise InvalidProblem(f"{got} is no package that 'baracuda-gen generate' has written; pass the module")
    return OfEachOp(package, Function)


@cache
def _generated() -> Mapping[str, Function]:
    import baracuda.generated  # the generator reads what is beside this, before there is any

    return functions(baracuda.generated)


if TYPE_CHECKING:
    from baracuda.generated._functions import *  # noqa: F403

    from .experts import moe as moe
    from .products import matmul as matmul
else:

    def __getattr__(name: str) -> Callable[..., Any]:
        if name in _COMPOSED:
            return getattr(import_module(f"{__name__}.{_COMPOSED[name]}"), name)
        if name.startswith("_") or (function := _generated().get(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; ops are {', '.join(_generated())}")
        return function


def __dir__() -> list[str]:
    return [*__all__, *_COMPOSED, *_generated()]
