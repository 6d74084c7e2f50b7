"""Inputs that are the same everywhere: numbers made of the words of a counter-based generator, by exact operations."""

from __future__ import annotations

import zlib
from math import prod
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind

from ..problems.problem import Arrays, Problem

_HALF = 2.0**-32


class Philox:
    """What problems ask of `numpy.random.Generator`, whose own streams may differ between releases of NumPy."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.Philox(key=seed)

    def _drawn(self, size: Any) -> Any:
        shape = () if size is None else (size,) if isinstance(size, int) else tuple(size)
        words = np.asarray(self._words.random_raw(prod(shape) or 1), np.uint64)[: prod(shape)]
        return words.reshape(shape)

    def random(self, size: Any = None) -> Any:
        """From 0 to below 1."""
        return (self._drawn(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def uniform(self, low: float, high: float, size: Any = None) -> Any:
        return low + (high - low) * self.random(size)

    def integers(self, low: int, high: int, size: Any = None) -> Any:
        """From `low` to below `high`."""
        return low + (self._drawn(size) % np.uint64(high - low)).astype(np.int64)

    def standard_normal(self, size: Any = None) -> Any:
        """Near enough to normal: a sum of four numbers, with as many bits as a double has."""
        words, low = self._drawn(size), self._drawn(size)
        parts = [((words >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.float64) for shift in (0, 16, 32, 48)]
        return (sum(parts[1:], parts[0]) - 131070.0 + low.astype(np.float64) * _HALF * _HALF) * 2.0**-15


def draw(problem: Problem) -> Arrays:
    """The inputs of a problem; those that a forward saves are positive, whatever it would have saved."""
    rng: Any = Philox(zlib.crc32(str(problem.descriptor).encode()))
    types, arrays = problem.stored_types(), problem.draw(rng=rng)
    saved = sorted(problem.saved.intersection(types))
    return arrays | {name: _saved(rng, problem.shape_of(name), types[name]) for name in saved}


def _saved(rng: Philox, shape: tuple[int, ...], kind: ElementKind) -> np.ndarray[Any, Any]:
    drawn = rng.integers(1, 8, shape) if kind.value[0] in "iu" else rng.uniform(0.5, 2.0, shape)
    return np.asarray(drawn).astype(kind.row.numpy)
