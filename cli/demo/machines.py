"""Where the demo runs: arrays and a clock, on the GPU through CuPy or on the host device through NumPy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from baracuda.runtime import default_device
from baracuda.runtime.plans.plan import Array

RUNS = 20
FLUSH_BYTES = 256 << 20  # more than any GPU's L2 cache


class Machine(Protocol):
    """Allocates arrays and times calls."""

    name: str

    def put(self, array: np.ndarray[Any, Any]) -> Array:
        """The same array on this machine."""

    def get(self, array: Array) -> np.ndarray[Any, Any]:
        """The array as NumPy's, after all pending work has finished."""

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array."""

    def seconds(self, call: Callable[[], object]) -> float:
        """How long `call` takes; it has run before."""


class HostMachine:
    """NumPy arrays; times a single run, which says nothing about a GPU."""

    name = "host"

    def put(self, array: np.ndarray[Any, Any]) -> Array:
        return array

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        return np.asarray(array)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        return np.empty(shape, dtype)

    def seconds(self, call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start


class CudaMachine:
    """CuPy arrays; times the median of several runs with a cold L2 cache."""

    def __init__(self, name: str) -> None:
        import cupy

        self.cupy, self.name = cupy, name
        self._flush = cupy.empty(FLUSH_BYTES, np.uint8)

    def put(self, array: np.ndarray[Any, Any]) -> Array:
        return self.cupy.asarray(array)

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        return np.asarray(self.cupy.asnumpy(array))

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        return self.cupy.empty(shape, dtype)

    def seconds(self, call: Callable[[], object]) -> float:
        events = [(self.cupy.cuda.Event(), self.cupy.cuda.Event()) for _ in range(RUNS)]
        for start, end in events:
            self._flush.fill(0)
            start.record()
            call()
            end.record()
        events[-1][1].synchronize()
        return statistics.median(float(self.cupy.cuda.get_elapsed_time(*pair)) for pair in events) / 1e3

    def copy_seconds(self, nbytes: int) -> float:
        """How long copying `nbytes` of random data takes."""
        source = self.cupy.random.default_rng(0).random(nbytes // 4, np.float32)
        target = self.cupy.empty_like(source)
        self.cupy.copyto(target, source)
        return self.seconds(lambda: self.cupy.copyto(target, source))


def machine() -> Machine:
    """The first GPU if there is one and CuPy is installed, else the host device."""
    device = default_device()
    try:
        return HostMachine() if device.name == "host" else CudaMachine(device.name)
    except ImportError:
        return HostMachine()
