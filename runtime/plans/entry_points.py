"""`run_unchecked`, `bind` and `can_implement`, derived from a plan's `run`, and what documents the four.

A derived method is the code of `run` that calls another method instead of `_run`, so it costs what `run` costs. A
wrapper that forwards keywords would add a call to each launch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..arrays.arguments import Argument
from .prepared import BoundLaunch
from .selection import Verdict

S = TypeVar("S")
P = ParamSpec("P")
_SENTENCES = {
    "run": "Check the arguments and start the kernels; nothing is allocated.",
    "run_unchecked": "As `run`, for arguments that `run` or `can_implement` accepts.",
    "bind": "Check once, and return a call that only starts the kernels.",
    "can_implement": "Whether `run` would work, and if not, the error it would raise.",
}
_STRIDES = {"any": "any strides", "contiguous": "contiguous strides", "inner": "any strides, the last 1"}
_WIDTH = 112  # of a line that has more than the beginning of an argument's description
_OF_ALL = """workspace: any contiguous array of at least `workspace_bytes` bytes, on the device of the others
stream: a raw handle or a stream object; by default the current one of the arrays' library

Here"""
_ERRORS = "Raises InvalidProblem, Unsupported, BufferTooSmall, MisalignedOperand or WorkspaceTooSmall."


def entry_points(
    run: Callable[Concatenate[S, P], None],
) -> tuple[
    Callable[Concatenate[S, P], None],
    Callable[Concatenate[S, P], BoundLaunch],
    Callable[Concatenate[S, P], Verdict],
]:
    """`run_unchecked`, `bind` and `can_implement` with the arguments of `run`."""
    returns = ("None", "rt.BoundLaunch", "rt.Verdict")
    unchecked, bind, can_implement = map(_derived, [run] * 3, [*_SENTENCES][1:], returns)
    return unchecked, bind, can_implement


def _derived(run: Any, name: str, returns: str) -> Any:
    """The method of another name."""
    code = run.__code__
    qualname = f"{run.__qualname__.rpartition('.')[0]}.{name}"
    calls = tuple([f"_{name}" if called == "_run" else called for called in code.co_names])
    code = code.replace(co_name=name, co_qualname=qualname, co_names=calls)
    method = FunctionType(code, run.__globals__, name, None, run.__closure__)
    method.__kwdefaults__, method.__module__, method.__qualname__ = run.__kwdefaults__, run.__module__, qualname
    method.__annotations__ = {**run.__annotations__, "return": returns}
    return method


def document(plan: Any) -> None:
    """Document the methods of a plan class by what it declares of its arguments."""
    arguments = "\n".join([_described(of, plan.shape_text(of)) for of in plan.TENSORS])
    wide = ", acc f64 where that is f64, else f32" if any("acc" in of.dtypes for of in plan.TENSORS) else ""
    here = f"{_OF_ALL} {plan.dims_text()}T is the descriptor's element{wide}."
    for name, sentence in _SENTENCES.items():
        vars(plan)[name].__doc__ = f"{sentence}\n\n{arguments}\n{here}\n{_ERRORS}"


def _described(of: Argument, shape: str) -> str:
    """An argument's meaning, shape, types and strides, aliases, and when it is present."""
    held = " or ".join(of.dtypes)
    layout = f"{shape} of {held}, {_STRIDES[of.layout]}"
    if of.over == "list":
        layout = f"a list of arrays of {held} without gaps, {shape} in all"
    layout += f"; may be the memory of {' or '.join(of.may_alias)}" if of.may_alias else ""
    layout += f"; given exactly when {of.optional}" if of.optional else ""
    start = f"{of.name} ({of.role}): {of.doc};"
    return f"{start}{' ' if len(start) + len(layout) < _WIDTH else chr(10) + '    '}{layout}"
