"""Operators and functions of the program language: one row each, with everything any reading of it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Spread = Callable[..., Any]  # (xp, result, operands, their errors) -> how far the result may move


@dataclass(frozen=True, slots=True)
class Op:
    """`rounding` is the relative error of one evaluation in unit roundoffs (0: exact), after CUDA's documented ulps."""

    name: str
    arity: int
    cuda: str  # a format of the operands' CUDA text, and of the type of the `result`
    numpy: Callable[..., Any]  # (xp, *operands)
    rounding: float = 0.0
    spread: Spread | None = None  # None: errors do not pass through
    kind: str = "float"  # of the result; "same": of the operands, widest first
    takes: str = "number"  # what the operands must be: number, int, bool, complex, any
    symbol: str = ""  # Python's infix spelling, if it has one


def _call(name: str) -> Callable[..., Any]:
    return lambda xp, *a: getattr(xp, name)(*a)


def _elementwise(function: Callable[[float], float]) -> Callable[..., Any]:
    return lambda xp, a: xp.elementwise(function, a)


def _added(xp: Any, r: Any, a: Any, e: Any) -> Any:
    return sum(e)


def _multiplied(xp: Any, r: Any, a: Any, e: Any) -> Any:
    return xp.abs(a[0]) * e[1] + xp.abs(a[1]) * e[0] + e[0] * e[1]


def _divided(xp: Any, r: Any, a: Any, e: Any) -> Any:
    least = xp.abs(a[1]) - e[1]
    return xp.where(least > 0, (e[0] + xp.abs(r) * e[1]) / xp.where(least > 0, least, 1.0), np.inf)


def _chosen(xp: Any, r: Any, a: Any, e: Any) -> Any:
    either = xp.abs(1.0 * a[1] - 1.0 * a[2]) + xp.maximum(e[1], e[2])
    return xp.where(xp.asarray(e[0]) > 0, either, xp.where(a[0], e[1], e[2]))


def _undecided(xp: Any, r: Any, a: Any, e: Any) -> Any:
    """1 where a comparison may come out either way."""
    return xp.where((xp.abs(1.0 * a[0] - 1.0 * a[1]) <= e[0] + e[1]) & (e[0] + e[1] > 0), 1.0, 0.0)


def _any_undecided(xp: Any, r: Any, a: Any, e: Any) -> Any:
    return sum(e) > 0


def _anything(xp: Any, r: Any, a: Any, e: Any) -> Any:
    return xp.where(sum(e) > 0, np.inf, 0.0)


def _of_slope_one(xp: Any, r: Any, a: Any, e: Any) -> Any:
    """For sine and cosine, which are no monotone functions."""
    return xp.minimum(e[0], 2.0)


def _between_poles(xp: Any, r: Any, a: Any, e: Any) -> Any:
    """For the tangent, which is monotone where the cosine has one sign."""
    down, up = a[0] - e[0], a[0] + e[0]
    crosses = (xp.cos(down) * xp.cos(up) <= 0) | (e[0] >= 1.5)
    return xp.where(crosses & (e[0] > 0), np.inf, xp.fmax(xp.abs(xp.tan(up) - r), xp.abs(xp.tan(down) - r)))


def _outwards(xp: Any, r: Any, a: Any, e: Any) -> Any:
    """For an even function that grows with its operand's magnitude, faster and faster."""
    return xp.abs(xp.cosh(xp.abs(a[0]) + e[0]) - r)


def _at_the_corners(xp: Any, r: Any, a: Any, e: Any) -> Any:
    """How far a power of two operands moves, which is monotone in each."""
    corners = [xp.power(a[0] + i * e[0], a[1] + j * e[1]) - r for i in (-1, 1) for j in (-1, 1)]
    return xp.where(sum(e) > 0, xp.fmax.reduce(xp.abs(xp.stack(xp.broadcast_arrays(*corners)))), 0.0)


def _turned(xp: Any, r: Any, a: Any, e: Any) -> Any:
    """For an angle, which jumps by a whole turn."""
    return xp.where(sum(e) > 0, 7.0, 0.0)


def _of_part(part: str) -> Op:
    """Of a complex number, whose errors are a complex number, too."""
    return Op(part, 1, f"{{}}.{part}", _call(part), 0, lambda xp, r, a, e: getattr(e[0], part), takes="complex")


def _either_sign(xp: Any, r: Any, a: Any, e: Any) -> Any:
    return e[0] + xp.where((xp.abs(a[1]) <= e[1]) & (e[1] > 0), 2 * xp.abs(a[0]), 0.0)


def _larger(xp: Any, r: Any, a: Any, e: Any) -> Any:
    return xp.maximum(*e)


def _at_the_ends(numpy: Callable[..., Any], lowest: float = -np.inf, highest: float = np.inf) -> Spread:
    """How far a function that is monotone where it is defined moves with its operand to an end of its interval."""

    def spread(xp: Any, r: Any, a: Any, e: Any) -> Any:
        down = numpy(xp, xp.maximum(a[0] - e[0], lowest))
        up = numpy(xp, xp.minimum(a[0] + e[0], highest))
        return xp.fmax(xp.abs(up - r), xp.abs(down - r))

    return spread


def _infix(name: str, symbol: str, rounding: float, spread: Spread, numpy: Callable[..., Any]) -> Op:
    return Op(name, 2, f"{{}} {symbol} {{}}", numpy, rounding, spread, kind="same", symbol=symbol)


def _integer(name: str, symbol: str) -> Op:
    return Op(name, 2, f"math::{name}({{}}, {{}})", _call(name), 0, _anything, "int", "int", symbol)


def _philox(xp: Any, seed: Any, offset: Any, element: Any) -> Any:
    """Philox4x32-10: see math.cuh. Words are of 64 bits here, of which the upper half is 0."""
    low = np.uint64(0xFFFFFFFF)
    seed, offset, element = (np.asarray(v, np.int64).astype(np.uint64) for v in (seed, offset, element))
    block = element >> np.uint64(2)
    a, b, c, d = (v & low for v in (block, block >> np.uint64(32), offset, offset >> np.uint64(32)))
    key, other = seed & low, seed >> np.uint64(32)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b = (second >> np.uint64(32)) ^ b ^ key, second & low
        c, d = (first >> np.uint64(32)) ^ d ^ other, first & low
        key, other = (key + np.uint64(0x9E3779B9)) & low, (other + np.uint64(0xBB67AE85)) & low
    word = element & np.uint64(3)
    return np.select([word == 0, word == 1, word == 2], [a, b, c], d).astype(np.int64)


def _compare(name: str, symbol: str) -> Op:
    return Op(name, 2, f"{{}} {symbol} {{}}", _call(name), 0, _undecided, "bool", "number", symbol)


def _function(
    name: str,
    ulps: float,
    numpy: Callable[..., Any] | None = None,
    lowest: float = -np.inf,
    spread: Spread | None = None,
    highest: float = np.inf,
) -> Op:
    """A function defined from `lowest` to `highest`, that CUDA computes within `ulps` units in the last place."""
    numpy = numpy or _call(name)
    return Op(name, 1, f"math::{name}({{}})", numpy, 2 * ulps, spread or _at_the_ends(numpy, lowest, highest))


def _safe_sqrt(xp: Any, a: Any) -> Any:
    """The square root, but with the slope 0 at 0."""
    return xp.where(a == 0.0, 0.0 * a, xp.sqrt(xp.where(a == 0.0, 1.0, a)))


def _function_of_two(name: str, ulps: float, numpy: Callable[..., Any], spread: Spread) -> Op:
    return Op(name, 2, f"math::{name}({{}}, {{}})", numpy, 2 * ulps, spread)


def _integral(name: str, numpy: str) -> Op:
    return Op(name, 1, f"math::{name}({{}})", _call(numpy), 0, _at_the_ends(_call(numpy)))


def _whole(xp: Any, a: Any) -> Any:
    return xp.whole(a)


def _of_whole(xp: Any, r: Any, a: Any, e: Any) -> Any:
    """Both as floats, for a difference of 64-bit ints may be none."""
    ends = (1.0 * xp.whole(1.0 * a[0] + sign * e[0]) for sign in (-1, 1))
    return xp.fmax(*(xp.abs(end - 1.0 * r) for end in ends))


def _extreme(name: str) -> Op:
    return Op(name, 2, f"math::{name}({{}}, {{}})", _call(name), 0, _larger, kind="same")


OPS: dict[str, Op] = {
    op.name: op
    for op in (
        _infix("add", "+", 1, _added, lambda xp, a, b: a + b),
        _infix("sub", "-", 1, _added, lambda xp, a, b: a - b),
        _infix("mul", "*", 1, _multiplied, lambda xp, a, b: a * b),
        Op("div", 2, "{} / {}", lambda xp, a, b: xp.divide(a, b), 1, _divided, symbol="/"),
        Op("neg", 1, "-{}", lambda xp, a: -a, 0, _added, kind="same", symbol="-"),
        Op(
            "fma",
            3,
            "math::fma({}, {}, {})",
            lambda xp, a, b, c: a * b + c,
            1,
            lambda xp, r, a, e: _multiplied(xp, r, a, e) + e[2],
        ),
        Op("stop_gradient", 1, "({})", _call("stop_gradient"), 0, _added, kind="same"),
        Op("abs", 1, "math::abs({})", _call("abs"), 0, _added, kind="same"),
        _extreme("maximum"),
        _extreme("minimum"),
        _integral("floor", "floor"),
        _integral("ceil", "ceil"),
        _integral("round", "rint"),
        _function("sqrt", 0.5, lowest=0.0),
        replace(_function("safe_sqrt", 0.5, _safe_sqrt, lowest=0.0), cuda="math::sqrt({})"),
        _function("rsqrt", 2, lambda xp, a: 1 / xp.sqrt(a), lowest=0.0),
        replace(_function("exp", 2), cuda="math::exp_for<{result}>({})"),
        _function("exp2", 2),
        _function("expm1", 1),
        _function("log", 1, lowest=0.0),
        _function("log2", 1, lowest=0.0),
        _function("log1p", 1, lowest=-1.0),
        _function("tanh", 2),
        _function("sin", 2, spread=_of_slope_one),
        _function("cos", 2, spread=_of_slope_one),
        _function("tan", 4, spread=_between_poles),
        _function("asin", 2, _call("arcsin"), -1.0, highest=1.0),
        _function("acos", 2, _call("arccos"), -1.0, highest=1.0),
        _function("atan", 2, _call("arctan")),
        _function("sinh", 5),
        _function("cosh", 5, spread=_outwards),
        _function("asinh", 3, _call("arcsinh")),
        _function("acosh", 4, _call("arccosh"), lowest=1.0),
        _function("atanh", 3, _call("arctanh"), -1.0, highest=1.0),
        _function("cbrt", 4),  # of glibc; CUDA has 1
        _function("exp10", 2, lambda xp, a: xp.power(10.0, a)),
        _function("log10", 2, lowest=0.0),
        _function_of_two("pow", 4, _call("power"), _at_the_corners),
        _function_of_two("atan2", 3, _call("arctan2"), _turned),
        _function_of_two("hypot", 3, _call("hypot"), _added),
        _function_of_two("fmod", 0, _call("fmod"), _anything),
        _function_of_two("copysign", 0, _call("copysign"), _either_sign),
        _integral("trunc", "trunc"),
        Op("i64", 1, "math::whole({})", _whole, 0, _of_whole, "int"),
        _function("erf", 2, _elementwise(math.erf)),
        _function("erfc", 5, _elementwise(math.erfc)),
        _function("sigmoid", 4, lambda xp, a: xp.exp(-xp.logaddexp(0.0, -a))),  # whose slope does not overflow
        Op("where", 3, "{} ? {} : {}", lambda xp, c, a, b: xp.where(c, a, b), 0, _chosen, "same", "any"),
        _compare("less", "<"),
        _compare("less_equal", "<="),
        _compare("greater", ">"),
        _compare("greater_equal", ">="),
        _compare("equal", "=="),
        _compare("not_equal", "!="),
        Op("logical_and", 2, "{} && {}", _call("logical_and"), 0, _any_undecided, "bool", "bool", "and"),
        Op("logical_or", 2, "{} || {}", _call("logical_or"), 0, _any_undecided, "bool", "bool", "or"),
        Op("logical_not", 1, "!{}", _call("logical_not"), 0, _any_undecided, "bool", "bool", "not"),
        Op("isnan", 1, "math::isnan({})", _call("isnan"), 0, None, "bool", "float"),
        _of_part("real"),
        _of_part("imag"),
        Op(
            "complex", 2, "Complex<acc_t>{{{}, {}}}", lambda xp, a, b: xp.complex(a, b), 0,
            lambda xp, r, a, e: xp.complex(*e), "complex",
        ),
        _integer("floor_divide", "//"),
        _integer("remainder", "%"),
        _integer("bitwise_and", "&"),
        _integer("bitwise_or", "|"),
        _integer("bitwise_xor", "^"),
        _integer("left_shift", "<<"),
        _integer("right_shift", ">>"),
        Op("philox", 3, "philox({}, {}, {})", _philox, 0, _anything, "int", "int"),
        Op("invert", 1, "~{}", _call("invert"), 0, _anything, "int", "int", "~"),
    )
}
REDUCTIONS = ("sum", "mean", "var", "max", "min", "prod", "any", "all", "argmax", "argmin")
QUERIES = ("index", "size", "present")
CASTS = ("T", "acc", "f16", "bf16", "f32", "f64")


class NumPy:
    """NumPy as the rows above want it: errors silent, functions NumPy lacks applied one by one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def stop_gradient(a: Any) -> Any:
        return a

    @staticmethod
    def complex(a: Any, b: Any) -> Any:
        """Of two parts; a + 1j * b would make NaN of an infinity."""
        result = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), np.result_type(a, b, np.complex64))
        result.real, result.imag = a, b
        return result

    @staticmethod
    def whole(a: Any) -> Any:
        """The 64-bit int towards zero; the nearest there is for what is larger, 0 for NaN."""
        a = np.asarray(a)
        if a.dtype.kind in "biu":
            return a.astype(np.int64)
        most = np.iinfo(np.int64)
        inside = np.where((a > -(2.0**63)) & (a < 2.0**63), a, 0).astype(np.int64)
        return np.where(a >= 2.0**63, most.max, np.where(a <= -(2.0**63), most.min, inside))

    @staticmethod
    def elementwise(function: Callable[[float], float], a: Any) -> Any:
        """`function` of doubles; of a long double's rest its slope, for in a tail of erfc that rest is many ulps."""
        narrow = np.asarray(a, np.float64)
        value = np.vectorize(function, otypes=[np.float64])(narrow)
        if np.asarray(a).dtype != np.longdouble:
            return value
        rest = np.where(np.isfinite(narrow), a - narrow, 0)
        return value + rest * error_slope(np, function, a)


def error_slope(xp: Any, function: Callable[[float], float], a: Any) -> Any:
    """The derivative of erf or erfc."""
    one = np.longdouble(1)
    slope = (-one if function is math.erfc else one) / np.sqrt(np.arctan(one))
    return (slope if np.asarray(getattr(a, "_value", a)).dtype == np.longdouble else float(slope)) * xp.exp(-a * a)
