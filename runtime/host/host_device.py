"""The host device: compiles kernels with the machine's C++ compiler and runs their threads as fibers."""

from __future__ import annotations

import _ctypes
import ctypes
import math
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from ..cache.root import cache_root
from ..device import Kernel, KernelSource, Watch, WatchedArray
from ..errors import CompileError, DriverError, InvalidProblem, KernelInternal
from ..observe import log
from .arena import Arena, Array, Shape
from .build import Builder
from .cache import BuildCache
from .library import Exported
from .places import with_places
from .toolchain import find_toolchain

_ORDERS = {"forward": 0, "reverse": 1, "random": 2}
_BLOCKS = "in order", "interleaved"
_ASYNCHRONIES = {"late": 0, "early": 1, "random": 2}
_MAX_X, _MAX_YZ = 2**31 - 1, 65535
_MAX_BLOCK = 1024
_MAX_STATIC_SHARED = 48 << 10
_SHARED_PADDING = 256  # between the objects of a block's static shared memory
_MAX_ALIVE = 4096  # threads of interleaved blocks
_MAX_WORKERS = 24  # a worker maps up to 1,024 stacks of two mappings each; Linux allows a process 65,530


class Executor(Protocol):
    """Another way to run kernels on the host device's arrays."""

    @property
    def watch(self) -> Watch: ...
    def load(self, source: KernelSource) -> Kernel: ...
    def is_loaded(self, source: KernelSource) -> bool: ...


class HostDevice:
    """Runs generated kernels on the CPU; a misbehaving kernel raises KernelInternal, and the device stays usable.

    `order` is the order of a block's threads where CUDA leaves it open ("forward", "reverse" or "random", seeded by
    `seed`): missing barriers show in one order or another. With `blocks` "interleaved", as many blocks as a GPU of
    `multiprocessors` would run at once take turns in seeded order; "in order", each of `workers` OS threads runs one
    after another. `timeout` is the limit of a launch in seconds.

    Some functions of device headers have a text for GPUs and one for this device, `#ifdef BARACUDA_HOST`. With
    `gpu_text`, an architecture such as "sm_90", kernels get the former, inline PTX included.

    With `check`, every memory access is checked: bounds, uninitialised reads, alignment, races within a block and
    between blocks, which are interleaved. See docs/host-device.md.
    """

    def __init__(self, compiler: str | None = None, *, check: bool = False) -> None:
        """`compiler` overrides BARACUDA_HOST_CXX and PATH; CompileError if there is none."""
        self.name = self.arch = "host"
        self.check = check
        self.coverage: Path | None = None  # the folder where kernels outside of check mode count the branches they take
        self.gpu_text: str | None = None
        self.executor: Executor | None = None  # runs kernels instead of the machine's own code
        self.multiprocessors = 3  # few, and no power of two: what a persistent kernel does with it shows
        self.order, self.blocks, self.asynchrony = "forward", "in order", "late"
        self.seed, self.timeout = 0, 60.0
        self.workers = min(len(os.sched_getaffinity(0)), _MAX_WORKERS)
        toolchain = find_toolchain(compiler)
        self.compiler = shlex.join(toolchain.command)
        self._builder = Builder(toolchain, BuildCache(cache_root() / "host"))
        self._arena = Arena()
        self._kernels: dict[tuple[KernelSource, bool, str | None], HostKernel] = {}
        self._watched = threading.local()

    @property
    def compilations(self) -> int:
        """How many kernels this device compiled because they were not cached."""
        return self._builder.compilations

    def load(self, source: KernelSource) -> Kernel:
        """Compile `source` or find it in memory or on disk; raises CompileError."""
        if self.executor is not None:
            return self.executor.load(source)
        kernel = self._kernels.get(key := self._key(source))
        if kernel is None:
            kernel = self._kernels[key] = HostKernel(self, self._builder, *key)
            log.debug("loaded %s on the host device%s", source.symbol, ", in check mode" if self.check else "")
        return kernel

    def is_loaded(self, source: KernelSource) -> bool:
        """Whether `load` would return without compiling or reading a file."""
        if self.executor is not None:
            return self.executor.is_loaded(source)
        return self._key(source) in self._kernels

    def code(self, source: KernelSource) -> bytes:
        """The library that `source` is compiled to."""
        return self._builder.code(source)

    def _key(self, source: KernelSource) -> tuple[KernelSource, bool, str | None]:
        return source, self.check, None if self.coverage else self.gpu_text

    def write_counts(self) -> None:
        """Write which branches the kernels in `coverage` have taken; what they take from now on is not counted."""
        for kernel in self._kernels.values():
            kernel.write_counts()

    @property
    def tensor_map_encoder(self) -> Any:
        """What encodes tensor maps for kernels of this device, with the arguments of cuTensorMapEncodeTiled."""
        return self._builder.runtime().tensor_map_encoder

    def is_capturing(self, stream: int) -> bool:
        """Never: there are no streams."""
        return False

    @property
    def watch(self) -> Watch | None:
        """None, or in check mode a context whose launches may access only the given arrays.

        Raises KernelInternal at its end if an output was not fully written. Launches outside of any watch may access
        every array of `empty` and `sparse`. With `gpu_text` a context that watches nothing: plans do not remember
        calls within one.
        """
        if self.executor:
            return self.executor.watch
        return self._watch if self.check else _unwatched if self.gpu_text else None

    @contextmanager
    def _watch(self, arrays: Sequence[WatchedArray]) -> Iterator[None]:
        runtime = self._builder.runtime()
        memory, before = runtime.watch(arrays), getattr(self._watched, "memory", None)
        self._watched.memory = memory
        try:
            yield
            if findings := runtime.unwritten(memory):
                raise KernelInternal(findings)
        finally:
            self._watched.memory = before
            runtime.unwatch(memory)

    @contextmanager
    def watched_memory(self) -> Iterator[int]:
        """The runtime's handle of the memory that this thread's launches may access in check mode."""
        if memory := getattr(self._watched, "memory", None):
            yield memory
            return
        with self._watch(self._arena.watched_arrays()):
            yield self._watched.memory

    def empty(
        self, shape: Shape, dtype: npt.DTypeLike, *, guard: bool = True, align_end: bool = True
    ) -> Array:
        """A C-contiguous array of all-ones bytes in its own mapping, between two guard pages if `guard`.

        With `align_end`, its last byte is the last before a guard page, and the largest power of two that divides its
        size also divides its address (a page at most). Otherwise it begins right after a guard page, and
        `check_canaries` checks the rest of its last page.
        """
        return self._arena.empty(shape, dtype, guard=guard, align_end=align_end)

    def sparse(self, nbytes: int) -> Array:
        """`nbytes` zero bytes between two guard pages; only touched pages take memory."""
        return self._arena.sparse(nbytes)

    def check_canaries(self, array: Array) -> None:
        """Raise KernelInternal if padding around `array`, or around its base, was overwritten."""
        self._arena.check_canaries(array)

    def describe_findings(self, findings: str) -> str:
        """`findings`, with each faulting address near an array of this device explained."""

        def explain(match: re.Match[str]) -> str:
            near = self._arena.describe(int(match[1], 16))
            return f"{match[0]}, {near}" if near else match[0]

        return re.sub(r"address (0x[0-9a-f]+)", explain, findings)


class HostKernel:
    """A loaded entry point of the host device."""

    def __init__(
        self, device: HostDevice, builder: Builder, source: KernelSource, check: bool, gpu_text: str | None
    ) -> None:
        self._runtime = runtime = builder.runtime()
        self._device, self._symbol, self._check = device, source.symbol, check
        self._may_overlap = gpu_text is None or int(gpu_text[3:]) >= 90
        self._symbolizer = builder.toolchain.symbolizer
        coverage = None if check else device.coverage
        self._path, self._library, exported = builder.kernel(
            source, _load, check=check, coverage=coverage, gpu_text=gpu_text
        )
        runtime.bind(exported)
        if exported.static_shared > _MAX_STATIC_SHARED + _SHARED_PADDING and not check:
            raise CompileError(
                f"{source.symbol!r} of {source.path!r}: {exported.static_shared} bytes of static shared "
                f"memory, a block has {_MAX_STATIC_SHARED}; use DYN_SHARED"
            )
        self._argument_bytes: int = exported.argument_bytes
        self._cluster: int = exported.cluster
        self._per_multiprocessor: int = exported.blocks_per_multiprocessor
        self._exported = ctypes.addressof(exported)

    def write_counts(self) -> None:
        """Write which branches were taken, if the kernel counts them."""
        if write := getattr(self._library, "__gcov_dump", None):
            write()

    def prepared(
        self,
        grid: tuple[int, int, int],
        block: int,
        args: int,
        args_bytes: int,
        keep: object,
        overlaps: bool = False,
    ) -> Callable[[int], None]:
        """`launch` as a function of the stream alone; it keeps `keep` alive."""

        def start(stream: int, _keep: object = keep) -> None:
            self.launch(grid, block, args, args_bytes, stream, overlaps)

        return start

    def launch(
        self,
        grid: tuple[int, int, int],
        block: int,
        args: int,
        args_bytes: int,
        stream: int,
        overlaps: bool = False,
    ) -> None:
        """Run `grid` blocks of `block` threads to the end; `stream` is ignored.

        In check mode, a kernel that `overlaps` must wait before it accesses what the launch before accesses. Raises
        DriverError for a launch that CUDA would refuse, and KernelInternal with one finding per line for a kernel that
        does what a GPU does not allow.
        """
        device, name, (x, y, z) = self._device, self._symbol, grid
        if not (1 <= x <= _MAX_X and 1 <= y <= _MAX_YZ and 1 <= z <= _MAX_YZ):
            raise DriverError(f"{name!r}: grid {grid} is not within 1 and ({_MAX_X}, {_MAX_YZ}, {_MAX_YZ})")
        if not 1 <= block <= _MAX_BLOCK:
            raise DriverError(f"{name!r}: a block of {block} threads is not within 1 and {_MAX_BLOCK}")
        if x % self._cluster:
            raise DriverError(f"{name!r}: grid {grid} is no multiple of its cluster of {self._cluster} blocks")
        if args_bytes != self._argument_bytes:
            raise DriverError(f"{name!r} takes {self._argument_bytes} argument bytes, got {args_bytes}")
        _require_known("thread order", device.order, _ORDERS)
        _require_known("blocks", device.blocks, _BLOCKS)
        _require_known("asynchrony", device.asynchrony, _ASYNCHRONIES)
        with device.watched_memory() if self._check else nullcontext() as memory:
            self._launch(grid, block, args, memory, overlaps)

    def _launch(
        self, grid: tuple[int, int, int], block: int, args: int, memory: int | None, overlaps: bool
    ) -> None:
        device = self._device
        findings = self._runtime.launch(
            self._exported,
            args,
            grid,
            block,
            order=_ORDERS[device.order],
            seed=device.seed & 0xFFFFFFFF,
            asynchrony=_ASYNCHRONIES[device.asynchrony],
            alive=self._alive(math.prod(grid), block),
            overlaps=overlaps and self._may_overlap,
            workers=max(1, min(device.workers, math.prod(grid) // self._cluster)),
            timeout=device.timeout,
            memory=memory,
        )
        if findings:
            text = with_places(device.describe_findings(findings), self._path, self._symbolizer)
            raise KernelInternal(f"kernel {self._symbol!r}:\n{text}")

    def _alive(self, blocks: int, threads: int) -> int:
        """How many clusters are alive at once on an OS thread."""
        if not self._check and self._device.blocks == "in order":
            return 1
        fitting = min(self._device.multiprocessors * self._per_multiprocessor, _MAX_ALIVE // threads, blocks)
        return max(1, fitting // self._cluster)


def _unwatched(_arrays: Sequence[WatchedArray]) -> AbstractContextManager[None]:
    return nullcontext()


def _require_known(what: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise InvalidProblem(f"unknown {what} {value!r}; known are {', '.join(known)}")


def _load(path: Path) -> tuple[Path, ctypes.CDLL, Exported]:
    """A kernel's library; raises OSError or ValueError if the file is none."""
    library = ctypes.CDLL(str(path))
    try:
        return path, library, Exported.in_dll(library, "baracuda_host_kernel")
    except ValueError:
        _ctypes.dlclose(library._handle)  # else its name stands for it until the process ends
        raise
