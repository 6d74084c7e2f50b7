"""Operators and functions of the program language: one row each, with everything any reading of it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Partials = Callable[..., tuple[Any, ...]]  # (xp, result, *operands) -> |d result / d operand| for each


@dataclass(frozen=True, slots=True)
class Op:
    """`rounding` is the relative error of one evaluation in unit roundoffs (0: exact), after CUDA's documented ulps."""

    name: str
    arity: int
    cuda: str  # a format of the operands' CUDA text
    numpy: Callable[..., Any]  # (xp, *operands)
    rounding: float = 0.0
    partials: Partials | None = None  # None: the result is discrete, errors do not pass through
    kind: str = "float"  # of the result; "same": of the operands, widest first
    takes: str = "number"  # what the operands must be: number, int, bool, any
    symbol: str = ""  # Python's infix spelling, if it has one
    exact_everywhere: bool = True  # the same bits on every IEEE machine


def _call(name: str) -> Callable[..., Any]:
    return lambda xp, *a: getattr(xp, name)(*a)


def _elementwise(function: Callable[[float], float]) -> Callable[..., Any]:
    return lambda xp, a: xp.elementwise(function, a)


def _infix(name: str, symbol: str, rounding: float, partials: Partials, numpy: Callable[..., Any]) -> Op:
    return Op(name, 2, f"{{}} {symbol} {{}}", numpy, rounding, partials, kind="same", symbol=symbol)


def _integer(name: str, symbol: str) -> Op:
    return Op(name, 2, f"math::{name}({{}}, {{}})", _call(name), 0, None, "int", "int", symbol)


def _compare(name: str, symbol: str) -> Op:
    return Op(name, 2, f"{{}} {symbol} {{}}", _call(name), 0, None, "bool", "number", symbol)


def _function(
    name: str,
    ulps: float,
    slope: Callable[..., Any],
    numpy: Callable[..., Any] | None = None,
    exact: bool = False,
) -> Op:
    """A one-operand function whose CUDA implementation is within `ulps` units in the last place."""
    return Op(
        name,
        1,
        f"math::{name}({{}})",
        numpy or _call(name),
        2 * ulps,
        lambda xp, r, a: (xp.abs(slope(xp, r, a)),),
        exact_everywhere=exact,
    )


def _sigmoid(xp: Any, a: Any) -> Any:
    return 1 / (1 + xp.exp(-a))


def _no_slope(xp: Any, r: Any, *a: Any) -> tuple[Any, ...]:
    return tuple(0 * r for _ in a)


_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)

OPS: dict[str, Op] = {
    op.name: op
    for op in (
        _infix("add", "+", 1, lambda xp, r, a, b: (1, 1), lambda xp, a, b: a + b),
        _infix("sub", "-", 1, lambda xp, r, a, b: (1, 1), lambda xp, a, b: a - b),
        _infix("mul", "*", 1, lambda xp, r, a, b: (xp.abs(b), xp.abs(a)), lambda xp, a, b: a * b),
        Op(
            "div",
            2,
            "{} / {}",
            lambda xp, a, b: xp.divide(a, b),
            1,
            lambda xp, r, a, b: (1 / xp.abs(b), xp.abs(r / b)),
            symbol="/",
        ),
        Op("neg", 1, "-{}", lambda xp, a: -a, 0, lambda xp, r, a: (1,), kind="same", symbol="-"),
        Op(
            "fma",
            3,
            "math::fma({}, {}, {})",
            lambda xp, a, b, c: a * b + c,
            1,
            lambda xp, r, a, b, c: (xp.abs(b), xp.abs(a), 1),
        ),
        Op("abs", 1, "math::abs({})", _call("abs"), 0, lambda xp, r, a: (1,), kind="same"),
        Op(
            "maximum",
            2,
            "math::maximum({}, {})",
            _call("maximum"),
            0,
            lambda xp, r, a, b: (1, 1),
            kind="same",
        ),
        Op(
            "minimum",
            2,
            "math::minimum({}, {})",
            _call("minimum"),
            0,
            lambda xp, r, a, b: (1, 1),
            kind="same",
        ),
        Op("floor", 1, "math::floor({})", _call("floor"), 0, _no_slope),
        Op("ceil", 1, "math::ceil({})", _call("ceil"), 0, _no_slope),
        Op("round", 1, "math::round({})", _call("rint"), 0, _no_slope),
        _function("sqrt", 0.5, lambda xp, r, a: 0.5 / r, exact=True),
        _function("rsqrt", 2, lambda xp, r, a: 0.5 * r / a, lambda xp, a: 1 / xp.sqrt(a)),
        _function("exp", 2, lambda xp, r, a: r),
        _function("exp2", 2, lambda xp, r, a: r * math.log(2)),
        _function("expm1", 1, lambda xp, r, a: r + 1),
        _function("log", 1, lambda xp, r, a: 1 / a),
        _function("log2", 1, lambda xp, r, a: 1 / (a * math.log(2))),
        _function("log1p", 1, lambda xp, r, a: 1 / (1 + a)),
        _function("tanh", 2, lambda xp, r, a: 1 - r * r),
        _function("sin", 2, lambda xp, r, a: xp.cos(a)),
        _function("cos", 2, lambda xp, r, a: xp.sin(a)),
        _function("erf", 2, lambda xp, r, a: _TWO_OVER_SQRT_PI * xp.exp(-a * a), _elementwise(math.erf)),
        _function("erfc", 5, lambda xp, r, a: _TWO_OVER_SQRT_PI * xp.exp(-a * a), _elementwise(math.erfc)),
        _function("sigmoid", 4, lambda xp, r, a: r * (1 - r), _sigmoid),
        Op(
            "where",
            3,
            "{} ? {} : {}",
            lambda xp, c, a, b: xp.where(c, a, b),
            0,
            lambda xp, r, c, a, b: (0, xp.where(c, 1.0, 0.0), xp.where(c, 0.0, 1.0)),
            kind="same",
            takes="any",
        ),
        _compare("less", "<"),
        _compare("less_equal", "<="),
        _compare("greater", ">"),
        _compare("greater_equal", ">="),
        _compare("equal", "=="),
        _compare("not_equal", "!="),
        Op("logical_and", 2, "{} && {}", _call("logical_and"), 0, None, "bool", "bool", "and"),
        Op("logical_or", 2, "{} || {}", _call("logical_or"), 0, None, "bool", "bool", "or"),
        Op("logical_not", 1, "!{}", _call("logical_not"), 0, None, "bool", "bool", "not"),
        Op("isnan", 1, "math::isnan({})", _call("isnan"), 0, None, "bool", "float"),
        _integer("floor_divide", "//"),
        _integer("remainder", "%"),
        _integer("bitwise_and", "&"),
        _integer("bitwise_or", "|"),
        _integer("bitwise_xor", "^"),
        _integer("left_shift", "<<"),
        _integer("right_shift", ">>"),
        Op("invert", 1, "~{}", _call("invert"), 0, None, "int", "int", "~"),
    )
}
REDUCTIONS = ("sum", "mean", "max", "min")
QUERIES = ("index", "size", "present")
CASTS = ("T", "acc", "f16", "bf16", "f32", "f64")


class NumPy:
    """NumPy as the rows above want it: errors silent, functions NumPy lacks applied one by one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def elementwise(function: Callable[[float], float], a: Any) -> Any:
        return np.vectorize(function, otypes=[np.float64])(np.asarray(a, np.float64))
