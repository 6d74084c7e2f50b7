"""Out of memory: a call that cannot have its output says so, and the next one works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from baracuda import ops

from ..trials.memory import Memory

_LEAST = 1 << 20  # bytes that may be left of a GPU's memory
_ROWS = {"host": 1 << 50}  # of 64 numbers: more than any machine has; on a GPU, more than is left
_FEW = 1 << 20


def shortage(memory: Memory, library: Any) -> list[str]:
    """Run out of memory once: what is wrong with that."""
    row = library.arange(64, dtype=np.float32).reshape(1, 64)
    first = library.asarray(ops.softmax(row, softmax_axis=-1))
    many = library.broadcast_to(row, (_ROWS.get(memory.name, _FEW), 64))
    with _filled(memory, library):
        try:
            ops.softmax(many, softmax_axis=-1)
        except MemoryError:
            pass
        else:
            return ["a call got more memory than there is"]
    again = library.asarray(ops.softmax(row, softmax_axis=-1))
    return [] if bool((first == again).all()) else ["a call has other bits after one that found no memory"]


@contextmanager
def _filled(memory: Memory, library: Any) -> Iterator[None]:
    """Leave next to nothing of a GPU's memory to others."""
    taken: list[Any] = []
    if memory.name != "host":
        library.get_default_memory_pool().free_all_blocks()
        size = library.cuda.runtime.memGetInfo()[0]
        while size >= _LEAST:
            try:
                taken.append(library.cuda.Memory(size))
            except (MemoryError, library.cuda.runtime.CUDARuntimeError):
                size //= 2
    try:
        yield
    finally:
        taken.clear()
