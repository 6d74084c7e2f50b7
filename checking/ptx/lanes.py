"""The types of values of instructions, and what a row of a table of instructions is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .numbers import Lanes, bits_of, flushed

DTYPES: dict[str, np.dtype[Any]] = {
    **{f"{kind}{8 * size}": np.dtype(f"u{size}") for kind in "bu" for size in (1, 2, 4, 8)},
    **{f"s{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(np.bool_),
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2"), np.dtype(np.uint16)),
    **dict.fromkeys(("f16x2", "bf16x2", "tf32"), np.dtype(np.uint32)),
}
ROUNDING = ("rn", "rz", "rm", "rp", "rna")


class Value(NamedTuple):
    result: str
    operands: tuple[str, ...]
    compute: Callable[..., Lanes]


Mods = set[str]
Row = Callable[[Mods, str], Value]


def take(mods: Mods, *names: str) -> str:
    """The modifier of `names` that is given, or ""."""
    named = next((name for name in names if name in mods), "")
    mods.discard(named)
    return named


def is_float(kind: str) -> bool:
    return kind in ("f32", "f64")


def signed(kind: str) -> bool:
    return kind.startswith("s")


def flushing(mods: Mods, compute: Callable[..., Lanes]) -> Callable[..., Lanes]:
    flush, saturate = take(mods, "ftz"), take(mods, "sat")

    def computed(*operands: Lanes) -> Lanes:
        value = compute(*map(flushed, operands)) if flush else compute(*operands)
        value = flushed(value) if flush else value
        return saturated(value).astype(value.dtype) if saturate else value

    return computed


def saturated(value: Lanes) -> Lanes:
    """Within 0 and 1; -0 and NaN become 0."""
    return np.where(np.greater(value, 0), np.minimum(value, 1), 0)


def as_bits(values: Lanes, kind: str) -> Lanes:
    return values if kind in ("f32", "f64") else bits_of(values)
