"""The host device with kernels as NVRTC compiles them for a GPU, run from their PTX."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from baracuda.runtime import KernelInternal, KernelSource
from baracuda.runtime.arrays.axes import span
from baracuda.runtime.cache.entries import entry_store
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import compile_ptx, cubin_key
from baracuda.runtime.device import Watch, WatchedArray

from ..trials.memory import HostMemory
from .group import WARP
from .machine import Machine, placed
from .memory import global_space
from .module import Module, Variable, read_module

_LANES = 1 << 15  # that run at once; later blocks follow


class PtxExecutor:
    """Runs kernels compiled for `target` ("sm_80") by a model of PTX."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.ranges: list[tuple[int, int]] = []  # of memory that launches may access
        self.written: set[int] = set()  # which of them the last launch has written
        self._loaded: dict[KernelSource, PtxKernel] = {}

    def load(self, source: KernelSource) -> PtxKernel:
        """Compile `source` with NVRTC; raises CompileError."""
        if source not in self._loaded:
            self._loaded[source] = PtxKernel(self, source)
        return self._loaded[source]

    def is_loaded(self, source: KernelSource) -> bool:
        """Whether `load` would not compile."""
        return source in self._loaded

    @property
    def watch(self) -> Watch:
        """A context whose launches may access only the given arrays."""
        return self._watch

    @contextmanager
    def _watch(self, arrays: Sequence[WatchedArray]) -> Iterator[None]:
        spans = [(a, span(a.shape, a.strides)) for a in arrays]
        self.ranges = [(a.pointer + low * a.itemsize, a.pointer + high * a.itemsize) for a, (low, high) in spans]
        self.written = set()
        try:
            yield
        finally:
            self.ranges = []


class PtxKernel:
    """A kernel and the module it is part of."""

    def __init__(self, executor: PtxExecutor, source: KernelSource) -> None:
        self._executor, self._source = executor, source
        self._module = ptx_of(source, executor.target)

    def launch(self, grid: tuple[int, int, int], block: int, args: int, args_bytes: int, stream: int) -> None:
        """Run all blocks to their end; raises KernelInternal for what a GPU does not allow."""
        self.prepared(grid, block, args, args_bytes, None, False)(stream)

    def prepared(
        self, grid: tuple[int, int, int], block: int, args: int, args_bytes: int, owner: object, overlaps: bool
    ) -> Callable[[int], None]:
        """`launch` to call several times; one that `overlaps` may begin before the launch before it has ended."""

        def start(stream: int, _owner: object = owner) -> None:
            try:
                self._launch(grid, block, args, args_bytes, overlaps)
            except (KernelInternal, LookupError) as error:
                place = f"PTX of kernel {self._source.symbol!r} for {self._executor.target}"
                raise KernelInternal(f"{place}: {error}") from error

        return start

    def _launch(self, grid: tuple[int, int, int], block: int, args: int, args_bytes: int, overlaps: bool) -> None:
        source, module, executor = self._source, self._module, self._executor
        entry = module.functions[source.symbol]
        if args_bytes != entry.params[0].nbytes:
            raise KernelInternal(f"takes {entry.params[0].nbytes} argument bytes, got {args_bytes}")
        variables = [*module.variables, *(v for function in module.functions.values() for v in function.variables)]
        symbols, static = placed((v for v in variables if v.space == "shared" and v.length), "shared")
        static = -(-static // 128) * 128
        symbols |= {v.name: ("shared", static) for v in variables if v.space == "shared" and not v.length}
        parameter = np.frombuffer(ctypes.string_at(args, args_bytes), np.uint8).copy()
        tables = {v.name: _table(v) for v in module.variables if v.space in ("global", "const")}
        own = {entry.params[0].name: parameter, **tables}
        symbols |= {name: ("global", array.ctypes.data) for name, array in own.items()}
        memory = global_space([*executor.ranges, *((a.ctypes.data, a.ctypes.data + a.nbytes) for a in own.values())])
        earlier = executor.written if overlaps and int(executor.target[3:]) >= 90 else set()
        blocks = np.arange(grid[0] * grid[1] * grid[2])
        at_once = max(1, _LANES // (-(-block // WARP) * WARP))
        written: set[int] = set()
        for first in range(0, blocks.size, at_once):
            some = blocks[first : first + at_once]
            machine = Machine(module, memory, symbols, static + source.dynamic_shared, grid, block, some)
            machine.earlier = frozenset(earlier)
            machine.run(source.symbol)
            written |= machine.written
        executor.written = written


def _table(variable: Variable) -> Any:
    """A variable's initial content."""
    array = np.zeros(variable.length, f"i{variable.itemsize}")
    content = np.array(variable.content, np.int64)[: variable.length]
    array[: content.size] = content.astype(array.dtype)
    return array


def ptx_of(source: KernelSource, target: str) -> Module:
    """What NVRTC compiles `source` to, from the cache or new."""
    store, key = entry_store(cache_root() / "ptx"), cubin_key(source, target)
    body = store.get(key)
    if body is None:
        body = compile_ptx(source, target).encode()
        store.put(key, body)
    return read_module(body.decode())


@contextmanager
def ptx_mode(target: str) -> Iterator[HostMemory]:
    """Memory of the host device, which meanwhile runs PTX for `target`."""
    memory = HostMemory()
    memory.device.executor = PtxExecutor(target)
    try:
        yield memory
    finally:
        memory.device.executor = None
