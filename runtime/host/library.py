"""The runtime library that executes kernels, as called from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ..device import WatchedArray
from ..errors import DriverError


class Exported(ctypes.Structure):
    """`baracuda_host::Kernel`."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("shared_anchor", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_size_t),
        ("dynamic_shared", ctypes.c_size_t),
        ("static_shared", ctypes.c_size_t),
        ("anchor_offset", ctypes.c_size_t),
        ("library", ctypes.c_char_p),
        ("image", ctypes.c_void_p),
        ("image_end", ctypes.c_void_p),
        ("blocks_per_multiprocessor", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
    )


class _Buffer(ctypes.Structure):
    """`baracuda_host::BufferArgument`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("first", ctypes.c_void_p),
        ("item_bytes", ctypes.c_size_t),
        ("rank", ctypes.c_uint32),
        ("readonly", ctypes.c_uint32),
        ("filled", ctypes.c_uint32),
        ("complete", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )

    @classmethod
    def of(cls, array: WatchedArray) -> _Buffer:
        axes = ctypes.c_int64 * len(array.shape)
        may = array.role == "in", array.role in ("in", "inout"), array.role == "out"
        shape, strides = axes(*array.shape), axes(*array.strides)
        return cls(array.name.encode(), array.pointer, array.itemsize, len(array.shape), *may, shape, strides)


class RuntimeLibrary:
    """One pool of workers per process. Findings are text, one per line."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # kernel libraries find its symbols
        pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
        self._launch = self._library.baracuda_host_launch
        number, signed = ctypes.c_uint, ctypes.c_int
        self._launch.argtypes = (pointer, pointer, *[number] * 8, signed, signed, ctypes.c_double, pointer)
        self._launch.restype = text
        self._library.baracuda_host_free.argtypes = (text,)
        self._library.baracuda_host_bind.argtypes = (pointer,)
        self._library.baracuda_host_watch.argtypes = (pointer, size)
        self._library.baracuda_host_watch.restype = pointer
        self._library.baracuda_host_unwatch.argtypes = (pointer,)
        self._library.baracuda_host_unwritten.argtypes = (pointer,)
        self._library.baracuda_host_unwritten.restype = text
        self.tensor_map_encoder = self._library.baracuda_host_tensor_map
        # The map, type, rank, first element, four arrays, and four modes.
        self.tensor_map_encoder.argtypes = (pointer, ctypes.c_int, ctypes.c_uint32, *[pointer] * 5, *[ctypes.c_int] * 4)

    def bind(self, kernel: Exported) -> None:
        """Complete the description of a newly loaded kernel."""
        self._library.baracuda_host_bind(ctypes.byref(kernel))

    def launch(
        self,
        kernel: int,
        args: int,
        grid: tuple[int, int, int],
        block: int,
        *,
        order: int,
        seed: int,
        asynchrony: int,
        alive: int,
        overlaps: bool,
        workers: int,
        timeout: float,
        memory: int | None,
    ) -> str:
        """Run a bound kernel and return findings; with `memory`, from `watch`, in check mode.

        `alive` is how many clusters an OS thread runs at once.
        """
        settings = order, seed, asynchrony, alive, overlaps, workers, timeout
        return self._text(self._launch(kernel, args, *grid, block, *settings, memory))

    def watch(self, arrays: Sequence[WatchedArray]) -> int:
        """Memory for checked launches, to be released with `unwatch`."""
        buffers = (_Buffer * len(arrays))(*map(_Buffer.of, arrays))
        memory: int | None = self._library.baracuda_host_watch(buffers, len(arrays))
        if memory is None:
            raise DriverError("the host device has no memory left for check mode; run it on smaller arrays")
        return memory

    def unwritten(self, memory: int) -> str:
        """One line per output that was not fully written."""
        return self._text(self._library.baracuda_host_unwritten(memory))

    def unwatch(self, memory: int) -> None:
        """Release what `watch` returned."""
        self._library.baracuda_host_unwatch(memory)

    def _text(self, address: int | None) -> str:
        if not address:
            return ""
        try:
            return ctypes.string_at(address).decode()
        finally:
            self._library.baracuda_host_free(address)
