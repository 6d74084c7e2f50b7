"""State spaces of a launch: global memory is the process's own, the others are arrays beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from baracuda.runtime import KernelInternal

from .numbers import Lanes

SHARED, LOCAL = 1 << 52, 1 << 53  # where generic addresses of shared and local memory begin
ORIGIN = 4096  # nothing lies below
_SPACE = (1 << 47) - ORIGIN


class Space:
    """Bytes that lanes read and write at addresses, which must lie in `ranges` (begin, end).

    Where each of several owners has memory of its own, `pitch` bytes apart, addresses count from its beginning.
    """

    def __init__(self, name: str, data: Any, origin: int, ranges: Sequence[tuple[int, int]], pitch: int = 0) -> None:
        self._name, self._data, self._origin, self._pitch = name, data, origin, pitch
        self._views: dict[int, Lanes] = {}
        ordered = sorted(ranges)
        self._begins = np.array([begin for begin, _ in ordered], np.int64)
        self._ends = np.array([end for _, end in ordered], np.int64)

    def places(self, addresses: Lanes, size: int, owners: Lanes) -> Lanes:
        """Where accesses of `size` bytes are; raises KernelInternal for one that is misaligned or out of bounds."""
        addresses = addresses.astype(np.int64)
        first = np.searchsorted(self._begins, addresses, side="right") - 1
        outside = (first < 0) | (addresses + size > self._ends[np.maximum(first, 0)])
        for wrong, why in ((outside, "out of bounds"), (addresses % size != 0, "misaligned")):
            if wrong.any():
                address = int(addresses[np.argmax(wrong)])
                raise KernelInternal(f"access of {size} bytes to address {address:#x} in {self._name} memory, {why}")
        return addresses - self._origin + owners * self._pitch

    def ranges_of(self, places: Lanes) -> Lanes:
        """Which of the ranges places are in, of a space without owners."""
        return np.searchsorted(self._begins, places + self._origin, side="right") - 1

    def load(self, places: Lanes, size: int) -> Lanes:
        """The unsigned numbers of `size` bytes there."""
        return self._view(size)[places // size]

    def store(self, places: Lanes, values: Lanes) -> None:
        size = values.dtype.itemsize
        self._view(size)[places // size] = values

    def _view(self, size: int) -> Lanes:
        if size not in self._views:
            self._views[size] = self._data.view(f"u{size}")
        return self._views[size]


def global_space(ranges: Sequence[tuple[int, int]]) -> Space:
    """The process's memory, of which lanes may access `ranges`."""
    memory: Any = (ctypes.c_uint8 * _SPACE).from_address(ORIGIN)
    return Space("global", np.frombuffer(memory, np.uint8), ORIGIN, ranges)


def own_space(name: str, owners: int, nbytes: int) -> Space:
    """Memory of `nbytes` for each of several owners, all ones."""
    pitch = -(-nbytes // 128) * 128
    return Space(name, np.full(max(owners * pitch, 8), 0xFF, np.uint8), 0, [(0, nbytes)], pitch)
