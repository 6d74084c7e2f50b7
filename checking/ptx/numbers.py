"""Rounding and conversion of numbers as PTX defines them, on arrays of bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Lanes = Any  # an array with an element for each lane, whose type changes with how its bits are seen

NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}  # what instructions give
FORMATS = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def bits_of(values: Lanes) -> Lanes:
    return values.view(_BITS[values.dtype.itemsize])


def widened(values: Lanes, kind: str) -> Lanes:
    """Bits of a floating type as float64."""
    values = np.ascontiguousarray(values)
    if kind == "tf32":  # the instruction ignores the lower bits
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return values.view(FORMATS[kind]).astype(np.float64)


def rounded(exact: Lanes, kind: str, mode: str, *, saturate: bool = False) -> Lanes:
    """`exact` (float64) as bits of a smaller floating type; `mode` is rn, rz, rm, rp or, to tf32, rna."""
    if kind == "tf32":
        bits = exact.astype(np.float32).view(np.uint32)
        if mode == "rna":
            finite = np.isfinite(exact)
            return np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits)
        raise LookupError(f"cvt to tf32 by {mode}")
    target = FORMATS[kind]
    near = exact.astype(target)
    if mode != "rn":
        near = _directed(near, exact, mode)
    bits = bits_of(near)
    if saturate:
        largest = np.array(_LARGEST[kind], target).view(bits.dtype)
        sign = np.signbit(exact).astype(bits.dtype) << bits.dtype.type(7)
        bits = np.where(np.abs(exact) >= _LARGEST[kind], sign | largest, bits)
    return np.where(np.isnan(exact), bits.dtype.type(NAN[kind]), bits) if kind in NAN else bits


def _directed(near: Lanes, exact: Lanes, mode: str) -> Lanes:
    """The neighbour of `near` that does not lie beyond `exact` in the direction of `mode`."""
    away = near.astype(np.float64) - exact
    if mode == "rz":
        wrong = np.abs(near.astype(np.float64)) > np.abs(exact)
        towards = np.zeros_like(exact)
    elif mode in ("rm", "rp"):
        wrong = away > 0 if mode == "rm" else away < 0
        towards = np.full_like(exact, -np.inf if mode == "rm" else np.inf)
    else:
        raise LookupError(f"rounding by {mode}")
    bits = bits_of(near)
    smaller = np.where(np.signbit(near.astype(np.float64)), towards > exact, towards < exact)
    step = np.where(smaller | (towards == 0), -1, 1).astype(np.int64)
    return np.where(wrong, (bits.astype(np.int64) + step).astype(bits.dtype), bits).view(near.dtype)


def flushed(values: Lanes) -> Lanes:
    """Subnormal floats as zeros of their sign."""
    tiny = np.abs(values) < np.finfo(values.dtype).tiny
    return np.where(tiny, np.copysign(values.dtype.type(0), values), values)


def fma32(a: Lanes, b: Lanes, c: Lanes, mode: str) -> Lanes:
    """a b + c of floats, rounded once."""
    odd = _odd_fma(a, b, c)
    near = odd.astype(np.float32)
    if mode not in ("", "rn"):
        near = _directed(near, odd, mode)
    return near


def fma16(a: Lanes, b: Lanes, c: Lanes, kind: str) -> Lanes:
    """a b + c of bits of f16 or bf16, rounded once."""
    odd = _odd_fma(*(widened(of, kind).astype(np.float32) for of in (a, b, c)))
    near = _directed(odd.astype(np.float32), odd, "rz")
    inexact = np.isfinite(odd) & (near.astype(np.float64) != odd)
    return rounded((near.view(np.uint32) | inexact).view(np.float32).astype(np.float64), kind, "rn")


def _odd_fma(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a b + c of floats in double, rounded to odd, so that it can be rounded again."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total, lost = _two_sum(product, addend)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    towards = np.where((lost > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + towards, bits).view(np.float64)


def fma64(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a b + c of doubles, from a product and a sum without error."""
    high = a * b
    split = float(2**27 + 1)
    a1 = a * split - (a * split - a)
    b1 = b * split - (b * split - b)
    a2, b2 = a - a1, b - b1
    low = ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2
    total, lost = _two_sum(high, c)
    exact = total + (lost + low)
    return np.where(np.isfinite(exact), exact, high + c)


def _two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
