"""The table of instructions that compute a value from values, lane by lane.

A row of `ROWS` takes an opcode's modifiers and its type, and gives the types of the result and the operands and what
computes one from the others. It takes every modifier that it implements off the set; an opcode of which one stays, or
without a row, is one that nobody has described yet: `row_of` raises LookupError.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arithmetic import absolute, add, arithmetic, extreme, fma, mad, mul, neg, quotient, rcp, rem, unary
from .bits import bfe, bfi, bits, brev, logic, lop3, prmt, shf, shl, shr
from .conversions import cvt
from .lanes import Mods, Row, Value, take
from .numbers import Lanes, flushed


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


def _selp(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind, kind, "pred"), lambda a, b, which: np.where(which, a, b))


def _mov(mods: Mods, kind: str) -> Value:
    return Value(kind, (kind,), lambda a: a)


_ORDERED: dict[str, Callable[..., Lanes]] = {
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater},
    **{"ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}


def _setp(mods: Mods, kind: str) -> Value:
    how = take(mods, *_ORDERED, *(f"{name}u" for name in _ORDERED), "num", "nan")
    flush = take(mods, "ftz")

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


ROWS: dict[str, Row] = {
    "add": add,
    "copysign": lambda mods, kind: Value(kind, (kind, kind), lambda sign, size: np.copysign(size, sign)),
    "sub": arithmetic(np.subtract, np.subtract, 2),
    "mul": mul,
    "mad": mad,
    "fma": fma,
    "div": arithmetic(quotient, np.divide, 2),
    "rem": rem,
    "abs": absolute,
    "neg": neg,
    "max": extreme(np.maximum, np.fmax, np.bitwise_and),
    "min": extreme(np.minimum, np.fmin, np.bitwise_or),
    "sqrt": unary(np.sqrt, "f32", "f64"),
    "rcp": rcp,
    "rsqrt": unary(lambda a: 1 / np.sqrt(a), "f32", "f64"),
    "ex2": unary(np.exp2, "f32"),
    "lg2": unary(np.log2, "f32"),
    "sin": unary(np.sin, "f32"),
    "cos": unary(np.cos, "f32"),
    "tanh": unary(np.tanh, "f32"),
    "and": logic(np.bitwise_and, 2),
    "or": logic(np.bitwise_or, 2),
    "xor": logic(np.bitwise_xor, 2),
    "not": logic(np.invert, 1),
    "shl": shl,
    "shr": shr,
    "shf": shf,
    "bfi": bfi,
    "bfe": bfe,
    "prmt": prmt,
    "lop3": lop3,
    "popc": bits(lambda x, width: x.bit_count()),
    "clz": bits(lambda x, width: width - x.bit_length()),
    "brev": brev,
    "selp": _selp,
    "mov": _mov,
    "setp": _setp,
    "cvt": cvt,
}
