"""The table of instructions that compute a value from values, lane by lane.

A row of `ROWS` takes an opcode's modifiers and its type, and gives the types of the result and the operands and what
computes one from the others. It takes every modifier that it implements off the set; an opcode of which one stays, or
without a row, is one that nobody has described yet: `row_of` raises LookupError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .numbers import FORMATS, Lanes, bits_of, flushed, fma16, fma32, fma64, rounded, widened

DTYPES: dict[str, np.dtype[Any]] = {
    **{f"{kind}{8 * size}": np.dtype(f"u{size}") for kind in "bu" for size in (1, 2, 4, 8)},
    **{f"s{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(np.bool_),
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2"), np.dtype(np.uint16)),
    **dict.fromkeys(("f16x2", "bf16x2", "tf32"), np.dtype(np.uint32)),
}
_ROUNDING = ("rn", "rz", "rm", "rp", "rna")


class Value(NamedTuple):
    result: str
    operands: tuple[str, ...]
    compute: Callable[..., Lanes]


Mods = set[str]
Row = Callable[[Mods, str], Value]


def row_of(opcode: tuple[str, ...]) -> Value:
    """What an opcode like ("add", "rn", "f32") computes; LookupError if the table lacks it."""
    name, *mods = opcode
    row, remaining = ROWS.get(name), set(mods[:-1])
    if row is None or not mods:
        raise LookupError(no_row(opcode))
    value = row(remaining, mods[-1])
    if remaining:
        raise LookupError(f"{no_row(opcode)} with {sorted(remaining)[0]!r}")
    return value


def no_row(opcode: tuple[str, ...]) -> str:
    """The message about an instruction that the table lacks."""
    return f"{'.'.join(opcode)} has no row in the table of PTX instructions"


def _take(mods: Mods, *names: str) -> str:
    """The modifier of `names` that is given, or ""."""
    named = next((name for name in names if name in mods), "")
    mods.discard(named)
    return named


def _is_float(kind: str) -> bool:
    return kind in ("f32", "f64")


def _signed(kind: str) -> bool:
    return kind.startswith("s")


def _arithmetic(integer: Callable[..., Lanes], real: Callable[..., Lanes], operands: int) -> Row:
    """The same operation on integers and floats, with rounding to the nearest, flushing and saturation."""

    def row(mods: Mods, kind: str) -> Value:
        if not _is_float(kind):
            _take(mods, "lo")
            return Value(kind, (kind,) * operands, integer)
        _take(mods, "rn")
        return Value(kind, (kind,) * operands, _flushing(mods, real))

    return row


def _flushing(mods: Mods, compute: Callable[..., Lanes]) -> Callable[..., Lanes]:
    flush, saturate = _take(mods, "ftz"), _take(mods, "sat")

    def computed(*operands: Lanes) -> Lanes:
        value = compute(*map(flushed, operands)) if flush else compute(*operands)
        value = flushed(value) if flush else value
        return _saturated(value).astype(value.dtype) if saturate else value

    return computed


def _saturated(value: Lanes) -> Lanes:
    """Within 0 and 1; -0 and NaN become 0."""
    return np.where(np.greater(value, 0), np.minimum(value, 1), 0)


def _mul(mods: Mods, kind: str) -> Value:
    if part := _take(mods, "hi", "wide"):
        wide = kind[0] + str(2 * int(kind[1:]))
        return Value(*((wide, (kind, kind), _wide_product(wide)) if part == "wide" else (kind, (kind, kind), _high)))
    return _arithmetic(np.multiply, np.multiply, 2)(mods, kind)


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


def _mad(mods: Mods, kind: str) -> Value:
    product = _mul(mods, kind)
    total = product.result
    return Value(total, (kind, kind, total), lambda a, b, c: product.compute(a, b) + c)


def _fma(mods: Mods, kind: str) -> Value:
    mode = _take(mods, *_ROUNDING)
    if kind == "f32":
        return Value(kind, (kind,) * 3, _flushing(mods, lambda a, b, c: fma32(a, b, c, mode)))
    if mode != "rn":
        mods.add(mode)
    if kind in ("f16x2", "bf16x2"):
        return Value(kind, (kind,) * 3, lambda *words: _in_pairs(words, lambda a, b, c: fma16(a, b, c, kind[:-2])))
    return Value(kind, (kind,) * 3, fma64)


def _in_pairs(words: tuple[Lanes, ...], compute: Callable[..., Lanes]) -> Lanes:
    """Both halves of words, each computed by itself."""
    low, high = (compute(*((word >> np.uint32(by)).astype(np.uint16) for word in words)) for by in (0, 16))
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


def _add(mods: Mods, kind: str) -> Value:
    """With directed rounding, for floats, as an fma by one."""
    mode = _take(mods, "rz", "rm", "rp") if kind == "f32" else ""
    if not mode:
        return _arithmetic(np.add, np.add, 2)(mods, kind)
    return Value(kind, (kind,) * 2, _flushing(mods, lambda a, b: fma32(a, np.ones_like(a), b, mode)))


def _quotient(a: Lanes, b: Lanes) -> Lanes:
    """Rounded towards zero; all bits are set where GPUs divide by zero."""
    a, b = np.broadcast_arrays(a, b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = np.floor_divide(a, divisor)  # of the most negative number by -1 it wraps
    if a.dtype.kind == "i":
        exact = quotient * divisor == a
        quotient = quotient + ((quotient < 0) & ~exact).astype(a.dtype)
    return np.where(b == 0, ~np.zeros_like(a), quotient)


def _rem(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind, kind), lambda a, b: np.where(b == 0, ~np.zeros_like(a), a - _quotient(a, b) * b))


def _extreme(pick: Callable[..., Lanes], ignoring: Callable[..., Lanes], zero: Callable[..., Lanes]) -> Row:
    """min or max; of floats NaN loses unless the opcode says otherwise, and -0 is below 0."""

    def row(mods: Mods, kind: str) -> Value:
        if not _is_float(kind):
            return Value(kind, (kind, kind), pick)
        wins = bool(_take(mods, "NaN"))

        def compute(a: Lanes, b: Lanes) -> Lanes:
            a, b = np.broadcast_arrays(a, b)
            a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
            value = (pick if wins else ignoring)(a, b)
            zeros = zero(bits_of(a), bits_of(b)).view(a.dtype)
            value = np.where((a == 0) & (b == 0), zeros, value)
            return np.where(np.isnan(value), np.array(np.nan, a.dtype), value)

        return Value(kind, (kind, kind), _flushing(mods, compute))

    return row


def _unary(compute: Callable[[Lanes], Lanes], *kinds: str) -> Row:
    """A function of a float, rounded to the nearest or approximated."""

    def row(mods: Mods, kind: str) -> Value:
        if kind not in kinds:
            raise LookupError(f"no row for the type {kind}")
        _take(mods, "rn", "approx")
        return Value(kind, (kind,), _flushing(mods, lambda a: compute(a.astype(np.float64)).astype(a.dtype)))

    return row


def _abs(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind,), _flushing(mods, np.abs) if _is_float(kind) else np.abs)


def _neg(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind,), _flushing(mods, np.negative) if _is_float(kind) else np.negative)


def _logic(compute: Callable[..., Lanes], operands: int) -> Row:
    return lambda mods, kind: Value(kind, (kind,) * operands, compute)


def _shl(mods: Mods, kind: str) -> Value:
    width = 8 * DTYPES[kind].itemsize
    return Value(kind, (kind, "u32"), lambda a, n: np.where(n < width, a << (n % width).astype(a.dtype), 0 * a))


def _shr(mods: Mods, kind: str) -> Value:
    width = 8 * DTYPES[kind].itemsize
    if _signed(kind):
        return Value(kind, (kind, "u32"), lambda a, n: a >> np.minimum(n, width - 1).astype(a.dtype))
    return Value(kind, (kind, "u32"), lambda a, n: np.where(n < width, a >> (n % width).astype(a.dtype), 0 * a))


def _shf(mods: Mods, kind: str) -> Value:
    left, clamp = _take(mods, "l", "r") == "l", _take(mods, "wrap", "clamp") == "clamp"

    def compute(low: Lanes, high: Lanes, amount: Lanes) -> Lanes:
        both = np.asarray(high, np.uint64) << np.uint64(32) | np.asarray(low, np.uint64)
        amount = np.asarray(np.minimum(amount, 32) if clamp else amount & 31, np.uint64)
        return ((both << amount) >> np.uint64(32) if left else both >> amount).astype(np.uint32)

    return Value(kind, ("u32", "u32", "u32"), compute)


def _bfi(mods: Mods, kind: str) -> Value:
    def compute(bits: Lanes, into: Lanes, start: Lanes, count: Lanes) -> Lanes:
        width = 8 * DTYPES[kind].itemsize
        every = (1 << width) - 1
        mask = [((1 << min(int(n) & 255, width)) - 1) << (int(s) & 255) & every for s, n in np.broadcast(start, count)]
        masks = np.array(mask, into.dtype).reshape(np.broadcast(start, count).shape)
        return (bits << (start % width).astype(bits.dtype)) & masks | into & ~masks

    return Value(kind, (kind, kind, "u32", "u32"), compute)


def _bfe(mods: Mods, kind: str) -> Value:
    def compute(bits: Lanes, start: Lanes, count: Lanes) -> Lanes:
        wide = np.asarray(bits, np.int64 if _signed(kind) else np.uint64) >> (start & 255).astype(wide_type)
        count = (count & 255).astype(wide_type)
        kept = wide & ((wide_type(1) << count) - wide_type(1))
        if _signed(kind):
            top = wide_type(1) << np.maximum(count - wide_type(1), wide_type(0))
            kept = (kept ^ top) - top
        return np.where(count == 0, 0, kept).astype(bits.dtype)

    wide_type: Any = np.int64 if _signed(kind) else np.uint64
    return Value(kind, (kind, "u32", "u32"), compute)


def _prmt(mods: Mods, kind: str) -> Value:
    def compute(a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
        both = np.asarray(b, np.uint64) << np.uint64(32) | np.asarray(a, np.uint64)
        result: Lanes = np.zeros(np.broadcast(both, selector).shape, np.uint64)
        for i in range(4):
            nibble = np.asarray(selector >> np.uint32(4 * i) & np.uint32(15), np.uint64)
            byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            result = result | np.where(nibble & np.uint64(8), sign, byte) << np.uint64(8 * i)
        return result.astype(np.uint32)

    return Value(kind, ("u32", "u32", "u32"), compute)


def _lop3(mods: Mods, kind: str) -> Value:
    def compute(a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
        result: Lanes = np.zeros_like(a)
        for i in range(8):
            terms = [value if i >> (2 - k) & 1 else ~value for k, value in enumerate((a, b, c))]
            result = result | np.where(table >> np.uint32(i) & np.uint32(1), terms[0] & terms[1] & terms[2], 0)
        return result.astype(np.uint32)

    return Value(kind, ("u32",) * 4, compute)


def _bits(compute: Callable[[int, int], int]) -> Row:
    """A count of an integer's bits, given its width."""

    def row(mods: Mods, kind: str) -> Value:
        width = 8 * DTYPES[kind].itemsize
        return Value("u32", (kind,), lambda a: np.array([compute(int(x), width) for x in np.atleast_1d(a)], np.uint32))

    return row


def _brev(mods: Mods, kind: str) -> Value:
    width = 8 * DTYPES[kind].itemsize
    text = "{:0" + str(width) + "b}"
    reverse = lambda a: np.array([int(text.format(int(x))[::-1], 2) for x in np.atleast_1d(a)], DTYPES[kind])  # noqa: E731
    return Value(kind, (kind,), reverse)


def _selp(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind, kind, "pred"), lambda a, b, which: np.where(which, a, b))


def _mov(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind,), lambda a: a)


_ORDERED: dict[str, Callable[..., Lanes]] = {
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater},
    **{"ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}


def _setp(mods: Mods, kind: str) -> Value:
    how = _take(mods, *_ORDERED, *(f"{name}u" for name in _ORDERED), "num", "nan")
    flush = _take(mods, "ftz")

    def compute(a: Lanes, b: Lanes) -> Lanes:
        if flush:
            a, b = flushed(a), flushed(b)
        unordered = (a != a) | (b != b)
        if how in ("num", "nan"):
            return unordered if how == "nan" else ~unordered
        answer = _ORDERED[how.removesuffix("u")](a, b)
        return answer | unordered if how.endswith("u") else answer & ~unordered

    if not how:
        raise LookupError(f"setp.{kind} without a comparison")
    return Value("pred", (kind, kind), compute)


_INTEGRAL: dict[str, Callable[[Lanes], Lanes]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _cvt(mods: Mods, source: str) -> Value:
    result = next((mod for mod in mods if mod in DTYPES), "")
    mods.discard(result)
    if not result:
        raise LookupError(f"cvt from {source} to an unknown type")
    mode, flush = _take(mods, *_ROUNDING, *_INTEGRAL), _take(mods, "ftz")
    to_float, from_float = result in FORMATS or result == "tf32", source in FORMATS
    dtype = DTYPES[result]
    if result.endswith("x2"):
        kind = result.removesuffix("x2")
        if kind in ("e4m3", "e5m2") and not _take(mods, "satfinite"):
            raise LookupError(f"cvt to {result} without satfinite")
        half = dtype.type(4 * dtype.itemsize)

        def pair(high: Lanes, low: Lanes) -> Lanes:
            exact = (x.astype(np.float64) for x in (high, low))
            upper, lower = (rounded(x, kind, mode, saturate=kind[0] == "e").astype(dtype) for x in exact)
            return upper << half | lower

        return Value(result, (source, source), pair)
    if not from_float:
        if to_float:
            if mode != "rn":
                mods.add(mode)
            return Value(result, (source,), lambda a: _as_bits(a.astype(FORMATS[result]), result))
        return Value(result, (source,), lambda a: a.astype(dtype))
    if not to_float:

        def integer(a: Lanes) -> Lanes:
            whole = _INTEGRAL[mode](widened(a, source))
            limits = np.iinfo(dtype)
            outside = np.isnan(whole) | (whole < limits.min) | (whole >= float(limits.max))
            inside = np.where(outside, 0, whole).astype(dtype)
            low, high = dtype.type(limits.min), dtype.type(limits.max)
            inside = np.where(np.isnan(whole) & (dtype.itemsize == 8), ~high, inside)
            return np.where(whole >= float(limits.max), high, np.where(whole < limits.min, low, inside))

        return Value(result, (source,), integer)
    saturate = _take(mods, "sat")

    def real(a: Lanes) -> Lanes:
        exact = widened(a, source)
        exact = np.where(np.abs(exact) < 2.0**-126, np.copysign(0, exact), exact) if flush else exact
        exact = _INTEGRAL[mode](exact) if mode in _INTEGRAL else exact
        exact = _saturated(exact) if saturate else exact
        bits = rounded(exact, result, mode if mode in _ROUNDING else "rn")
        return bits.view(dtype) if bits.dtype != dtype else bits

    return Value(result, (source,), real)


def _as_bits(values: Lanes, kind: str) -> Lanes:
    return values if kind in ("f32", "f64") else bits_of(values)


def _reciprocal(a: Lanes) -> Lanes:
    return 1 / a


def _rcp(mods: Mods, kind: str) -> Value:
    if kind == "f64" and "approx" in mods:  # the upper half of the number, which the program refines
        mods -= {"approx", "ftz"}
        upper = np.uint64(0xFFFFFFFF00000000)
        return Value(kind, (kind,), lambda a: ((1 / a).view(np.uint64) & upper).view(np.float64))
    return _unary(_reciprocal, "f32", "f64")(mods, kind)


ROWS: dict[str, Row] = {
    "add": _add,
    "copysign": lambda mods, kind: Value(kind, (kind, kind), lambda sign, size: np.copysign(size, sign)),
    "sub": _arithmetic(np.subtract, np.subtract, 2),
    "mul": _mul,
    "mad": _mad,
    "fma": _fma,
    "div": _arithmetic(_quotient, np.divide, 2),
    "rem": _rem,
    "abs": _abs,
    "neg": _neg,
    "max": _extreme(np.maximum, np.fmax, np.bitwise_and),
    "min": _extreme(np.minimum, np.fmin, np.bitwise_or),
    "sqrt": _unary(np.sqrt, "f32", "f64"),
    "rcp": _rcp,
    "rsqrt": _unary(lambda a: 1 / np.sqrt(a), "f32", "f64"),
    "ex2": _unary(np.exp2, "f32"),
    "lg2": _unary(np.log2, "f32"),
    "sin": _unary(np.sin, "f32"),
    "cos": _unary(np.cos, "f32"),
    "tanh": _unary(np.tanh, "f32"),
    "and": _logic(np.bitwise_and, 2),
    "or": _logic(np.bitwise_or, 2),
    "xor": _logic(np.bitwise_xor, 2),
    "not": _logic(np.invert, 1),
    "shl": _shl,
    "shr": _shr,
    "shf": _shf,
    "bfi": _bfi,
    "bfe": _bfe,
    "prmt": _prmt,
    "lop3": _lop3,
    "popc": _bits(lambda x, width: x.bit_count()),
    "clz": _bits(lambda x, width: width - x.bit_length()),
    "brev": _brev,
    "selp": _selp,
    "mov": _mov,
    "setp": _setp,
    "cvt": _cvt,
}
