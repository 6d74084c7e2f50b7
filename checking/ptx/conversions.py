"""Rows of instructions that convert values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .lanes import DTYPES, ROUNDING, Mods, Value, as_bits, saturated, take
from .numbers import FORMATS, Lanes, rounded, widened

_INTEGRAL: dict[str, Callable[[Lanes], Lanes]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def cvt(mods: Mods, source: str) -> Value:
    result = next((mod for mod in mods if mod in DTYPES), "")
    mods.discard(result)
    if not result:
        raise LookupError(f"cvt from {source} to an unknown type")
    mode, flush = take(mods, *ROUNDING, *_INTEGRAL), take(mods, "ftz")
    to_float, from_float = result in FORMATS or result == "tf32", source in FORMATS
    dtype = DTYPES[result]
    if result.endswith("x2"):
        kind = result.removesuffix("x2")
        if kind in ("e4m3", "e5m2") and not take(mods, "satfinite"):
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
            return Value(result, (source,), lambda a: as_bits(a.astype(FORMATS[result]), result))
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
    saturate = take(mods, "sat")

    def real(a: Lanes) -> Lanes:
        exact = widened(a, source)
        exact = np.where(np.abs(exact) < 2.0**-126, np.copysign(0, exact), exact) if flush else exact
        exact = _INTEGRAL[mode](exact) if mode in _INTEGRAL else exact
        exact = saturated(exact) if saturate else exact
        bits = rounded(exact, result, mode if mode in ROUNDING else "rn")
        return bits.view(dtype) if bits.dtype != dtype else bits

    return Value(result, (source,), real)
