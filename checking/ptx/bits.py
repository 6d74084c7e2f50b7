"""Rows of instructions on bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .lanes import DTYPES, Mods, Row, Value, signed, take
from .numbers import Lanes


def logic(compute: Callable[..., Lanes], operands: int) -> Row:
    return lambda mods, kind: Value(kind, (kind,) * operands, compute)


def shl(mods: Mods, kind: str) -> Value:
    width = 8 * DTYPES[kind].itemsize
    return Value(kind, (kind, "u32"), lambda a, n: np.where(n < width, a << (n % width).astype(a.dtype), 0 * a))


def shr(mods: Mods, kind: str) -> Value:
    width = 8 * DTYPES[kind].itemsize
    if signed(kind):
        return Value(kind, (kind, "u32"), lambda a, n: a >> np.minimum(n, width - 1).astype(a.dtype))
    return Value(kind, (kind, "u32"), lambda a, n: np.where(n < width, a >> (n % width).astype(a.dtype), 0 * a))


def shf(mods: Mods, kind: str) -> Value:
    left, clamp = take(mods, "l", "r") == "l", take(mods, "wrap", "clamp") == "clamp"

    def compute(low: Lanes, high: Lanes, amount: Lanes) -> Lanes:
        both = np.asarray(high, np.uint64) << np.uint64(32) | np.asarray(low, np.uint64)
        amount = np.asarray(np.minimum(amount, 32) if clamp else amount & 31, np.uint64)
        return ((both << amount) >> np.uint64(32) if left else both >> amount).astype(np.uint32)

    return Value(kind, ("u32", "u32", "u32"), compute)


def bfi(mods: Mods, kind: str) -> Value:
    def compute(bits: Lanes, into: Lanes, start: Lanes, count: Lanes) -> Lanes:
        width = 8 * DTYPES[kind].itemsize
        every = (1 << width) - 1
        mask = [((1 << min(int(n) & 255, width)) - 1) << (int(s) & 255) & every for s, n in np.broadcast(start, count)]
        masks = np.array(mask, into.dtype).reshape(np.broadcast(start, count).shape)
        return (bits << (start % width).astype(bits.dtype)) & masks | into & ~masks

    return Value(kind, (kind, kind, "u32", "u32"), compute)


def bfe(mods: Mods, kind: str) -> Value:
    def compute(bits: Lanes, start: Lanes, count: Lanes) -> Lanes:
        wide = np.asarray(bits, np.int64 if signed(kind) else np.uint64) >> (start & 255).astype(wide_type)
        count = (count & 255).astype(wide_type)
        kept = wide & ((wide_type(1) << count) - wide_type(1))
        if signed(kind):
            top = wide_type(1) << np.maximum(count - wide_type(1), wide_type(0))
            kept = (kept ^ top) - top
        return np.where(count == 0, 0, kept).astype(bits.dtype)

    wide_type: Any = np.int64 if signed(kind) else np.uint64
    return Value(kind, (kind, "u32", "u32"), compute)


def prmt(mods: Mods, kind: str) -> Value:
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


def lop3(mods: Mods, kind: str) -> Value:
    def compute(a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
        result: Lanes = np.zeros_like(a)
        for i in range(8):
            terms = [value if i >> (2 - k) & 1 else ~value for k, value in enumerate((a, b, c))]
            result = result | np.where(table >> np.uint32(i) & np.uint32(1), terms[0] & terms[1] & terms[2], 0)
        return result.astype(np.uint32)

    return Value(kind, ("u32",) * 4, compute)


def bits(compute: Callable[[int, int], int]) -> Row:
    """A count of an integer's bits, given its width."""

    def row(mods: Mods, kind: str) -> Value:
        width = 8 * DTYPES[kind].itemsize
        return Value("u32", (kind,), lambda a: np.array([compute(int(x), width) for x in np.atleast_1d(a)], np.uint32))

    return row


def brev(mods: Mods, kind: str) -> Value:
    width = 8 * DTYPES[kind].itemsize
    text = "{:0" + str(width) + "b}"
    reverse = lambda a: np.array([int(text.format(int(x))[::-1], 2) for x in np.atleast_1d(a)], DTYPES[kind])  # noqa: E731
    return Value(kind, (kind,), reverse)
