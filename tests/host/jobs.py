"""A launch with everything that belongs to it: what its arrays hold before, and what they must hold afterwards."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from repository import KERNELS

from baracuda.runtime.device import KernelSource, WatchedArray
from baracuda.runtime.errors import KernelInternal
from baracuda.runtime.host import HostDevice

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Tensor:
    """An array of a launch; `exact` and `bound` say what it holds afterwards, each of its shape or a number."""

    name: str
    role: str  # "in", "out", "inout" or "workspace"
    before: Array  # of outputs and workspaces only shape and type matter
    exact: npt.ArrayLike | None = None
    bound: npt.ArrayLike = 0.0

    def complaint(self, got: Array) -> str:
        """The element furthest beyond its bound, or "" if there is none."""
        if self.exact is None:
            return ""
        exact, bound = np.broadcast_to(self.exact, got.shape), np.broadcast_to(self.bound, got.shape)
        both_nan_or_same = (got == exact) | (np.isnan(got) & np.isnan(exact))
        with np.errstate(invalid="ignore"):
            error = np.where(both_nan_or_same, 0, abs(got.astype(exact.dtype) - exact))
            wrong = ~(error <= bound)
        if not wrong.any():
            return ""
        excess = np.where(wrong, np.nan_to_num(error, nan=np.inf), -1)
        worst = tuple(int(i) for i in np.unravel_index(np.argmax(excess), got.shape))
        place = f"{self.name}[{', '.join(map(str, worst))}]"
        return f"wrong result: {place} is {float(got[worst]):.6g}, must be {float(exact[worst]):.6g}"


@dataclass(frozen=True)
class Job:
    """`words` are what the parameter struct holds: names of tensors, whole numbers, doubles."""

    file: str
    symbol: str
    grid: int
    block: int
    tensors: tuple[Tensor, ...]
    words: tuple[str | int | float, ...]
    defines: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)  # another name for a tensor's memory

    @property
    def text(self) -> str:
        return (KERNELS / self.file).read_text()

    def source(self, text: str | None = None) -> KernelSource:
        return KernelSource(f"kernels/{self.file}", text or self.text, self.symbol, self.defines)

    def run(self, device: HostDevice, text: str | None = None) -> None:
        """Launch the kernel, or the same with another text; raises KernelInternal if a result is wrong."""
        arrays = {tensor.name: _array(device, tensor) for tensor in self.tensors}
        for tensor in self.tensors:
            if tensor.role in ("in", "inout"):
                arrays[tensor.name][...] = tensor.before
        words = b"".join(_word(word, arrays, self.aliases) for word in self.words)
        kernel = device.load(self.source(text))
        watched = [_watched(tensor, arrays[tensor.name]) for tensor in self.tensors]
        with device.watch(watched) if device.watch else nullcontext():
            kernel.launch((self.grid, 1, 1), self.block, _address(words), len(words), 0)
        for tensor in self.tensors:
            if complaint := tensor.complaint(arrays[tensor.name]):
                raise KernelInternal(complaint)


def _array(device: HostDevice, tensor: Tensor) -> Array:
    """Aligned to 16 bytes, as CUDA aligns; where that allows, it ends at a page that cannot be touched."""
    align_end = tensor.before.nbytes % 16 == 0
    return device.empty(tensor.before.shape, tensor.before.dtype, align_end=align_end)


def _word(word: str | int | float, arrays: dict[str, Array], aliases: dict[str, str]) -> bytes:
    if isinstance(word, str):
        return struct.pack("=Q", arrays[aliases.get(word, word)].ctypes.data)
    return struct.pack("=q" if isinstance(word, int) else "=d", word)


def _address(words: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(words), ctypes.c_void_p).value or 0


def _watched(tensor: Tensor, array: Array) -> WatchedArray:
    strides = tuple(step // array.itemsize for step in array.strides)
    return WatchedArray(tensor.name, tensor.role, array.ctypes.data, array.shape, strides, array.itemsize)


Build = Callable[..., Job]
ORDERS: Sequence[tuple[str, int]] = (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2))


def run_in_every_order(device: HostDevice, job: Job, text: str | None = None) -> None:
    """Run `job` with the threads of a block in several orders; raises KernelInternal for the first wrong result."""
    for device.order, device.seed in ORDERS:
        job.run(device, text)
