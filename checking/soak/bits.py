"""Counting of bits that differ: on a GPU by one kernel, which needs no memory, so that a graph can record it."""

from __future__ import annotations

from typing import Any

import numpy as np

_COUNT = "if (got != expected && counts) atomicAdd((unsigned long long*) &wrong[0], 1ull)"


class Differing:
    """Counts the words that differ; `library` is NumPy or CuPy."""

    def __init__(self, library: Any) -> None:
        self._kernel = None
        if library is not np:
            arguments = "T got, T expected, bool counts, raw int64 wrong"
            self._kernel = library.ElementwiseKernel(arguments, "", _COUNT, "baracuda_count_differing")

    def add(self, got: Any, expected: Any, counts: Any, wrong: Any) -> None:
        """Add to `wrong[0]` how many words of `got` differ, of the elements that `counts`, if it is given."""
        counts = True if counts is None else counts.reshape((*counts.shape, *[1] * (got.ndim - counts.ndim)))
        if self._kernel is None:
            wrong[0] += np.count_nonzero((got != expected) & counts)
        else:
            self._kernel(got, expected, counts, wrong)
