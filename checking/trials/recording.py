"""A CUDA driver in Python that starts nothing and records what it is asked for: GPUs for checks without a GPU.

Plans, devices and launches are the runtime's own; only the driver below them and the compiler are replaced.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper
from typing import Any, NamedTuple

from baracuda.runtime.device import Cubin, KernelSource, Resources
from baracuda.runtime.devices import cuda, driver, named, tensor_map
from baracuda.runtime.devices.cuda import CudaKernel
from baracuda.runtime.devices.driver import LaunchAttribute

# Architecture and number of multiprocessors of each device: two of one architecture, one that is older.
GPUS = (("sm_90", 132), ("sm_90", 7), ("sm_80", 24))
CAPTURING = 0xCA  # a stream that is being captured into a graph
_CONTEXT, _UNSUPPORTED = 0x1000, 900  # the handle of device 0's context; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
_ELSEWHERE = 201  # CUDA_ERROR_INVALID_CONTEXT
# What a launch may call: nothing of it allocates, waits or loads.
OF_LAUNCHES = frozenset(
    {"cuLaunchKernelEx", "cuStreamIsCapturing", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuTensorMapEncodeTiled"}
)


class Launched(NamedTuple):
    """A launch as the driver sees it; `words` are the bytes of the argument struct."""

    context: int
    source: KernelSource
    arch: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    overlaps: bool
    words: bytes


class _Function:
    """A function of the library, whose argument types may be declared."""

    argtypes: Any = None

    def __init__(self, name: str, library: RecordingDriver) -> None:
        self._name, self._library = name, library
        self._answer: Callable[..., int | None] = getattr(library, f"_{name}")

    def __call__(self, *arguments: Any) -> int:
        self._library.calls.append(self._name)
        return self._answer(*arguments) or 0


class RecordingDriver:
    """Stands for libcuda.so.1: `calls` are the names of the functions called, `launches` what was launched.

    A kernel is loaded when it is first asked for an attribute or launched, as the real driver does it, and a launch
    into a stream that is being captured fails if that loads the kernel.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.launches: list[Launched] = []
        self.struct_bytes: dict[int, int] = {}  # by function
        self._images: dict[bytes, tuple[KernelSource, str]] = {}
        self._libraries: list[tuple[KernelSource, str]] = []
        self._functions: dict[int, tuple[int, int]] = {}  # context and library, by handle
        self._loaded: set[int] = set()
        self._contexts: list[int] = []
        for name in dir(type(self)):
            if name.startswith("_cu"):
                setattr(self, name[1:], _Function(name[1:], self))

    def __getitem__(self, name: str) -> _Function:
        function: _Function = getattr(self, name)
        return function

    def compile(self, source: KernelSource, arch: str) -> Cubin:
        """In the place of `compile_cubin`: an image that stands for the source."""
        image = b"\x7fELF" + hashlib.sha256(repr((source, arch)).encode()).digest()
        self._images[image] = source, arch
        return Cubin(image, Resources(32, 0, 0, 0, 0.0))

    def _cuInit(self, flags: int) -> None: ...

    def _cuGetErrorName(self, code: int, out: Any) -> None:
        out._obj.value = b"CUDA_ERROR"

    def _cuGetErrorString(self, code: int, out: Any) -> None:
        out._obj.value = b"of the recording driver"

    def _cuDriverGetVersion(self, out: Any) -> None:
        out._obj.value = 12080

    def _cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = len(GPUS)

    def _cuDeviceGet(self, out: Any, ordinal: int) -> None:
        out._obj.value = ordinal

    def _cuDeviceGetAttribute(self, out: Any, which: int, device: int) -> None:
        arch, multiprocessors = GPUS[device]
        number = int(arch[3:])
        out._obj.value = {75: number // 10, 76: number % 10, 16: multiprocessors}[which]

    def _cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        out._obj.value = _CONTEXT + device

    def _cuCtxGetCurrent(self, out: Any) -> None:
        out._obj.value = self._contexts[-1] if self._contexts else 0

    def _cuCtxGetDevice(self, out: Any) -> int:
        out._obj.value = self._contexts[-1] - _CONTEXT if self._contexts else 0
        return 0 if self._contexts else _ELSEWHERE

    def _cuCtxPushCurrent_v2(self, context: int) -> None:
        self._contexts.append(context)

    def _cuCtxPopCurrent_v2(self, out: Any) -> None:
        out._obj.value = self._contexts.pop()

    def _cuLibraryLoadData(self, out: Any, image: bytes, *options: Any) -> None:
        self._libraries.append(self._images[image])
        out._obj.value = len(self._libraries)

    def _cuLibraryGetKernel(self, out: Any, library: int, name: bytes) -> None:
        assert self._libraries[library - 1][0].symbol.encode() == name
        out._obj.value = library

    def _cuKernelGetFunction(self, out: Any, kernel: int) -> None:
        out._obj.value = function = 0x5000 + len(self._functions)
        self._functions[function] = self._contexts[-1], kernel

    def _cuFuncGetAttribute(self, out: Any, which: int, function: int) -> None:
        self._loaded.add(function)
        out._obj.value = 32

    def _cuFuncSetAttribute(self, function: int, which: int, value: int) -> None: ...

    def _cuStreamGetCtx(self, stream: int, out: Any) -> None:
        out._obj.value = self._contexts[-1]

    def _cuStreamIsCapturing(self, stream: int, out: Any) -> None:
        out._obj.value = int(stream == CAPTURING)

    def _cuTensorMapEncodeTiled(self, start: int, kind: int, rank: int, pointer: int, *rest: Any) -> None:
        lists = [tuple(argument) if isinstance(argument, ctypes.Array) else argument for argument in rest]
        digest = hashlib.sha512(repr((kind, rank, pointer, lists)).encode()).digest()
        ctypes.memmove(start, digest + digest, 128)

    def _cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: None) -> int:
        context, library = self._functions[function.value]
        if not self._contexts or self._contexts[-1] != context:
            return _ELSEWHERE
        c = config._obj
        if (c.stream or 0) == CAPTURING and function.value not in self._loaded:
            return _UNSUPPORTED
        self._loaded.add(function.value)
        source, arch = self._libraries[library - 1]
        overlaps = bool(c.attribute_count) and bool(LaunchAttribute.from_address(c.attributes).value)
        words = ctypes.string_at(parameters[0], self.struct_bytes[function.value])
        shape = tuple(c.grid), tuple(c.block), c.dynamic_shared_bytes, c.stream or 0
        self.launches.append(Launched(context, source, arch, *shape, overlaps, words))
        return 0


@contextmanager
def recording() -> Iterator[RecordingDriver]:
    """The recording driver in the place of the real one: "cuda:0" and on are `GPUS`."""
    library, load, check_bytes = RecordingDriver(), ctypes.CDLL, CudaKernel._check_bytes

    def opened(name: str, *arguments: Any, **options: Any) -> Any:
        return library if name == "libcuda.so.1" else load(name, *arguments, **options)

    def noted(kernel: CudaKernel, args_bytes: int) -> None:
        library.struct_bytes[kernel._function] = args_bytes
        check_bytes(kernel, args_bytes)

    patched: Any = ctypes, cuda, CudaKernel
    devices, compile_cubin = dict(named._devices), patched[1].compile_cubin
    _find_caches()
    forget()
    patched[0].CDLL, patched[1].compile_cubin, patched[2]._check_bytes = opened, library.compile, noted
    driver.forget()
    tensor_map._function.cache_clear()
    try:
        yield library
    finally:
        patched[0].CDLL, patched[1].compile_cubin, patched[2]._check_bytes = load, compile_cubin, check_bytes
        driver.forget()
        forget()
        named._devices.update(devices)


def forget() -> None:
    """Forget every device and what the runtime has cached."""
    named._devices.clear()
    for cache in _caches:
        cache.cache_clear()


def _find_caches() -> None:
    """Find the caches of the runtime's modules that are imported, except those of texts, which depend on nothing."""
    global _modules
    modules = frozenset(name for name in sys.modules if name.startswith("baracuda.runtime."))
    if modules != _modules:
        _modules = modules
        cached = (each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper))
        _caches[:] = [c for c in cached if c.__module__ in modules and not c.__module__.startswith(_OF_TEXTS)]


_OF_TEXTS = tuple(f"baracuda.runtime.{name}" for name in ("plans.formula", "compile", "host", "packs", "cache"))
_caches: list[Any] = []
_modules: frozenset[str] = frozenset()
