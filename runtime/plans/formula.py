"""Formulas: expressions over a problem's numbers that plans declare as text, compiled on first evaluation."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from traceback import extract_tb
from types import CodeType
from typing import Any

from ..arrays.axes import is_mask, is_suffix_mask, mask_axes, normalize_axis
from ..errors import BaracudaError, InvalidProblem
from ..values import one_line, short_repr

NO_VALUE = (ArithmeticError, LookupError, TypeError, ValueError)  # what arithmetic on fields may raise
_LONGEST = 1000  # characters of an expression that is written out
_NAME = "<formula>"  # of the file that tracebacks show


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """`a` rounded up to a multiple of `b`."""
    return -(-a // b) * b


def bucket(value: int, *sizes: int) -> int:
    """The first of the ascending `sizes` that is at least `value`; `value` itself if there is none."""
    return next((size for size in sizes if size >= value), value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "prod": math.prod,
    "isfinite": math.isfinite,
    "is_mask": is_mask,
    "is_suffix_mask": is_suffix_mask,
    "mask_axes": mask_axes,
    "normalize_axis": normalize_axis,
    "ceil_div": ceil_div,
    "round_up": round_up,
    "bucket": bucket,
}
_GLOBALS: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS}


@cache  # as many as plans declare
def _compiled(text: str) -> CodeType:
    return compile(text, _NAME, "eval")


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a formula whose names have these values. It can call `FUNCTIONS` only."""
    return eval(_compiled(text), _GLOBALS, values)


@cache
def names_in(text: str) -> tuple[str, ...]:
    """The names in a formula in the order of evaluation, without functions."""
    return tuple(name for name in _compiled(text).co_names if name not in FUNCTIONS)


def written_out(text: str, terms: Mapping[str, str]) -> str:
    """A formula with terms replaced by their text, since readers of an error know no terms."""
    for name, of in reversed(list(terms.items())):  # a term is made of those before it
        longer = re.sub(rf"\b{name}\b(?!\s*\()", f"({of})", text)
        if len(longer) > _LONGEST:  # terms of terms may double it each time
            break
        text = longer
    return text


def in_words(text: str) -> str:
    """A formula as messages show it, with functions that only specs know put into words."""
    return ast.unparse(_InWords().visit(ast.parse(text, mode="eval")))


class _InWords(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="is_suffix_mask"), args=[mask, rank]):
                return ast.Name(f"{ast.unparse(mask)} to select trailing axes only, one or more of {ast.unparse(rank)}")
            case ast.Call(func=ast.Name(id="is_mask"), args=[mask, rank]):
                return ast.Name(f"no bit of {ast.unparse(mask)} beyond the {ast.unparse(rank)} axes")
        return node


def no_value(plan: str, text: str, values: Mapping[str, Any], error: Exception) -> Exception:
    """The error for a formula that fails to evaluate, such as `n // m` where m is 0.

    It shows the part that failed, and the values of the names in it.
    """
    if isinstance(error, BaracudaError):
        return error
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == _NAME]
    if frames and frames[-1].end_colno is not None:
        text = text[frames[-1].colno : frames[-1].end_colno]
    got = ", ".join(f"{name}={short_repr(values[name])}" for name in names_in(text) if name in values)
    return InvalidProblem(f"{plan}: {one_line(text, 200)} has no value: {one_line(error)}{got and f'; got {got}'}")
