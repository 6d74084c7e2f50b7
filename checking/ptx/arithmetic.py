"""Rows of instructions of arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .lanes import DTYPES, ROUNDING, Mods, Row, Value, flushing, is_float, take
from .numbers import Lanes, bits_of, fma16, fma32, fma64, rounded, widened


def arithmetic(integer: Callable[..., Lanes], real: Callable[..., Lanes], operands: int) -> Row:
    """The same operation on integers and floats, with rounding to the nearest, flushing and saturation."""

    def row(mods: Mods, kind: str) -> Value:
        if not is_float(kind):
            take(mods, "lo")
            return Value(kind, (kind,) * operands, integer)
        take(mods, "rn")
        return Value(kind, (kind,) * operands, flushing(mods, real))

    return row


def mul(mods: Mods, kind: str) -> Value:
    if part := take(mods, "hi", "wide"):
        wide = kind[0] + str(2 * int(kind[1:]))
        return Value(*((wide, (kind, kind), _wide_product(wide)) if part == "wide" else (kind, (kind, kind), _high)))
    return arithmetic(np.multiply, np.multiply, 2)(mods, kind)


def _wide_product(wide: str) -> Callable[..., Lanes]:
    dtype = DTYPES[wide]
    return lambda a, b: np.asarray(a, dtype) * np.asarray(b, dtype)


def _high(a: Lanes, b: Lanes) -> Lanes:
    """The upper half of a product."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(8 * a.dtype.itemsize)).astype(a.dtype)
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> shift, y & low, y >> shift
    middle = x1 * y0 + (x0 * y0 >> shift)
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> shift) + (other >> shift)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.astype(a.dtype)


def mad(mods: Mods, kind: str) -> Value:
    product = mul(mods, kind)
    total = product.result
    return Value(total, (kind, kind, total), lambda a, b, c: product.compute(a, b) + c)


def fma(mods: Mods, kind: str) -> Value:
    mode = take(mods, *ROUNDING)
    if kind == "f32":
        return Value(kind, (kind,) * 3, flushing(mods, lambda a, b, c: fma32(a, b, c, mode)))
    if mode != "rn":
        mods.add(mode)
    if kind in ("f16x2", "bf16x2"):
        return Value(kind, (kind,) * 3, lambda *words: _in_pairs(words, lambda a, b, c: fma16(a, b, c, kind[:-2])))
    return Value(kind, (kind,) * 3, fma64)


def _in_pairs(words: tuple[Lanes, ...], compute: Callable[..., Lanes]) -> Lanes:
    """Both halves of words, each computed by itself."""
    low, high = (compute(*((word >> np.uint32(by)).astype(np.uint16) for word in words)) for by in (0, 16))
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


def add(mods: Mods, kind: str) -> Value:
    """With directed rounding, for floats, as an fma by one."""
    mode = take(mods, "rz", "rm", "rp") if kind == "f32" else ""
    if not mode:
        return arithmetic(np.add, np.add, 2)(mods, kind)
    return Value(kind, (kind,) * 2, flushing(mods, lambda a, b: fma32(a, np.ones_like(a), b, mode)))


def quotient(a: Lanes, b: Lanes) -> Lanes:
    """Rounded towards zero; all bits are set where GPUs divide by zero."""
    a, b = np.broadcast_arrays(a, b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = np.floor_divide(a, divisor)  # of the most negative number by -1 it wraps
    if a.dtype.kind == "i":
        exact = quotient * divisor == a
        quotient = quotient + ((quotient < 0) & ~exact).astype(a.dtype)
    return np.where(b == 0, ~np.zeros_like(a), quotient)


def rem(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind, kind), lambda a, b: np.where(b == 0, ~np.zeros_like(a), a - quotient(a, b) * b))


def extreme(pick: Callable[..., Lanes], ignoring: Callable[..., Lanes], zero: Callable[..., Lanes]) -> Row:
    """min or max; of floats NaN loses unless the opcode says otherwise, and -0 is below 0."""

    def row(mods: Mods, kind: str) -> Value:
        halves = kind in ("f16x2", "bf16x2")
        if not is_float(kind) and not halves:
            return Value(kind, (kind, kind), pick)
        wins = bool(take(mods, "NaN"))

        def compute(a: Lanes, b: Lanes) -> Lanes:
            a, b = np.broadcast_arrays(a, b)
            a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
            value = (pick if wins else ignoring)(a, b)
            zeros = zero(bits_of(a), bits_of(b)).view(a.dtype)
            value = np.where((a == 0) & (b == 0), zeros, value)
            return np.where(np.isnan(value), np.array(np.nan, a.dtype), value)

        def of_halves(a: Lanes, b: Lanes) -> Lanes:
            half = kind[:-2]
            return rounded(compute(widened(a, half), widened(b, half)), half, "rn")

        if halves:
            return Value(kind, (kind, kind), lambda *words: _in_pairs(words, of_halves))
        return Value(kind, (kind, kind), flushing(mods, compute))

    return row


def unary(compute: Callable[[Lanes], Lanes], *kinds: str) -> Row:
    """A function of a float, rounded to the nearest or approximated."""

    def row(mods: Mods, kind: str) -> Value:
        if kind not in kinds:
            raise LookupError(f"no row for the type {kind}")
        take(mods, "rn", "approx")
        return Value(kind, (kind,), flushing(mods, lambda a: compute(a.astype(np.float64)).astype(a.dtype)))

    return row


def absolute(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind,), flushing(mods, np.abs) if is_float(kind) else np.abs)


def neg(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind,), flushing(mods, np.negative) if is_float(kind) else np.negative)


def _reciprocal(a: Lanes) -> Lanes:
    return 1 / a


def rcp(mods: Mods, kind: str) -> Value:
    if kind == "f64" and "approx" in mods:  # the upper half of the number, which the program refines
        mods -= {"approx", "ftz"}
        upper = np.uint64(0xFFFFFFFF00000000)
        return Value(kind, (kind,), lambda a: ((1 / a).view(np.uint64) & upper).view(np.float64))
    return unary(_reciprocal, "f32", "f64")(mods, kind)
