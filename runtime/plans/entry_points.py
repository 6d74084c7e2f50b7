"""`run_unchecked`, `bind` and `can_implement`, derived from a plan's `run`: same signature, same documentation.

A derived method is the code of `run` that calls another method instead of `_run`, so it costs what `run` costs. A
wrapper that forwards keywords would add a call to each launch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar

from .prepared import BoundLaunch
from .selection import Verdict

S = TypeVar("S")
P = ParamSpec("P")


def run_unchecked(run: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """As `run`, for arguments that `run` or `can_implement` accepts."""
    method: Callable[Concatenate[S, P], None] = _derived(run, run_unchecked, "None")
    return method


def bind(run: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], BoundLaunch]:
    """Check once, and return a call that only starts the kernels."""
    method: Callable[Concatenate[S, P], BoundLaunch] = _derived(run, bind, "rt.BoundLaunch")
    return method


def can_implement(run: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], Verdict]:
    """Whether `run` would work, and if not, the error it would raise."""
    method: Callable[Concatenate[S, P], Verdict] = _derived(run, can_implement, "rt.Verdict")
    return method


def _derived(run: Any, of: Callable[..., Any], returns: str) -> Any:
    """The method named like the function `of`, with its docstring in the place of the first line of `run`'s."""
    code, name = run.__code__, of.__name__
    qualname = f"{run.__qualname__.rpartition('.')[0]}.{name}"
    calls = tuple([f"_{name}" if called == "_run" else called for called in code.co_names])
    code = code.replace(co_name=name, co_qualname=qualname, co_names=calls)
    method = FunctionType(code, run.__globals__, name, None, run.__closure__)
    method.__kwdefaults__, method.__module__, method.__qualname__ = run.__kwdefaults__, run.__module__, qualname
    method.__annotations__ = {**run.__annotations__, "return": returns}
    if run.__doc__:  # python -OO has none
        method.__doc__ = of.__doc__ + "\n" + run.__doc__.partition("\n")[2]  # type: ignore[operator]
    return method
