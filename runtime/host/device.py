"""The host device: compiles kernels with the machine's C++ compiler and runs their threads as fibers."""

from __future__ import annotations

import ctypes
import os
import re
import shlex

import numpy.typing as npt

from ..cache_root import cache_root
from ..device import KernelSource
from ..errors import CompileError, DriverError, InvalidProblem, KernelInternal
from .arena import Arena, Array, Shape
from .build import Builder
from .cache import BuildCache
from .toolchain import find_toolchain

_ORDERS = {"forward": 0, "reverse": 1, "random": 2}
_MAX_X, _MAX_YZ = 2**31 - 1, 65535
_MAX_BLOCK = 1024
_MAX_STATIC_SHARED = 48 << 10
_SHARED_PADDING = 256  # between the objects of a block's static shared memory
_MAX_WORKERS = 24  # a worker maps up to 1,024 stacks of two mappings each; Linux allows a process 65,530


class _Exported(ctypes.Structure):
    """`baracuda_host::Kernel`."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("shared_anchor", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_size_t),
        ("dynamic_shared", ctypes.c_size_t),
        ("static_shared", ctypes.c_size_t),
        ("anchor_offset", ctypes.c_size_t),
    )


class HostDevice:
    """Runs generated kernels on the CPU; one that misbehaves raises KernelInternal, the device stays usable.

    `order` is the order in which a block's threads run where CUDA leaves it open ("forward", "reverse" or
    "random", the last seeded by `seed`): a missing barrier shows in one order or another. `workers` is how
    many blocks run at a time, `timeout` how many seconds a launch may take.
    """

    def __init__(self, compiler: str | None = None) -> None:
        """`compiler` overrides BARACUDA_HOST_CXX and what PATH offers; CompileError if there is none."""
        self.name = self.arch = "host"
        self.order, self.seed, self.timeout = "forward", 0, 60.0
        self.workers = min(len(os.sched_getaffinity(0)), _MAX_WORKERS)
        toolchain = find_toolchain(compiler)
        self.compiler = shlex.join(toolchain.command)
        self._builder = Builder(toolchain, BuildCache(cache_root() / "host"))
        self._arena = Arena()
        self._kernels: dict[KernelSource, HostKernel] = {}

    @property
    def compilations(self) -> int:
        """How many kernels this device compiled because no cache had them."""
        return self._builder.compilations

    def load(self, source: KernelSource) -> HostKernel:
        """Compile `source` or take it from memory or disk; raises CompileError."""
        kernel = self._kernels.get(source)
        if kernel is None:
            kernel = self._kernels[source] = HostKernel(self, self._builder, source)
        return kernel

    def is_loaded(self, source: KernelSource) -> bool:
        """Whether `load` would return without compiling or reading a file."""
        return source in self._kernels

    def empty(
        self, shape: Shape, dtype: npt.DTypeLike, *, guard: bool = True, align_end: bool = True
    ) -> Array:
        """A C-contiguous array of all-ones bytes in its own mapping, between two no-access pages if `guard`.

        With `align_end` its last byte is the last before a no-access page, and the largest power of two that
        divides its size also divides its address (a page at most). Otherwise it begins right after a
        no-access page, so a page divides its address, and `check_canaries` watches the rest of its last page.
        """
        return self._arena.empty(shape, dtype, guard=guard, align_end=align_end)

    def sparse(self, nbytes: int) -> Array:
        """`nbytes` zero bytes between two no-access pages; only pages that are touched take memory."""
        return self._arena.sparse(nbytes)

    def check_canaries(self, array: Array) -> None:
        """Raise KernelInternal if padding around `array`, or the array it is a view of, was overwritten."""
        self._arena.check_canaries(array)

    def describe_findings(self, findings: str) -> str:
        """`findings` with each faulting address that lies near an array of this device explained."""

        def explain(match: re.Match[str]) -> str:
            near = self._arena.describe(int(match[1], 16))
            return f"{match[0]}, {near}" if near else match[0]

        return re.sub(r"address (0x[0-9a-f]+)", explain, findings)


class HostKernel:
    """A loaded entry point of the host device."""

    def __init__(self, device: HostDevice, builder: Builder, source: KernelSource) -> None:
        runtime = builder.runtime()
        self._device, self._symbol = device, source.symbol
        path = builder.kernel(source)
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise CompileError(f"cannot load {source.symbol!r} of {source.path!r}: {error}") from error
        exported = _Exported.in_dll(self._library, "baracuda_host_kernel")
        runtime.baracuda_host_bind(ctypes.byref(exported))
        if exported.static_shared > _MAX_STATIC_SHARED + _SHARED_PADDING:
            raise CompileError(
                f"{source.symbol!r} of {source.path!r}: {exported.static_shared} bytes of static shared "
                f"memory, a block has {_MAX_STATIC_SHARED}; use DYN_SHARED"
            )
        self._argument_bytes = exported.argument_bytes
        self._exported = ctypes.addressof(exported)
        self._free = runtime.baracuda_host_free
        self._free.argtypes = (ctypes.c_void_p,)
        self._launch = runtime.baracuda_host_launch
        words = [ctypes.c_uint] * 6
        self._launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, *words, ctypes.c_int, ctypes.c_double)
        self._launch.restype = ctypes.c_void_p

    def launch(self, grid: tuple[int, int, int], block: int, args: int, args_bytes: int, stream: int) -> None:
        """Run `grid` blocks of `block` threads to the end, `stream` being irrelevant here.

        Raises DriverError for a launch that CUDA would refuse, and KernelInternal with one finding per line
        for a kernel that does what a GPU would not allow.
        """
        device, name, (x, y, z) = self._device, self._symbol, grid
        if not (1 <= x <= _MAX_X and 1 <= y <= _MAX_YZ and 1 <= z <= _MAX_YZ):
            raise DriverError(f"{name!r}: grid {grid} is not within 1 and ({_MAX_X}, {_MAX_YZ}, {_MAX_YZ})")
        if not 1 <= block <= _MAX_BLOCK:
            raise DriverError(f"{name!r}: a block of {block} threads is not within 1 and {_MAX_BLOCK}")
        if args_bytes != self._argument_bytes:
            raise DriverError(f"{name!r} takes {self._argument_bytes} argument bytes, got {args_bytes}")
        if device.order not in _ORDERS:
            raise InvalidProblem(f"unknown thread order {device.order!r}; known are {', '.join(_ORDERS)}")
        workers, seed = max(1, min(device.workers, x * y * z)), device.seed & 0xFFFFFFFF
        findings = self._launch(
            self._exported, args, x, y, z, block, _ORDERS[device.order], seed, workers, device.timeout
        )
        if findings:
            text = (ctypes.string_at(findings) or b"").decode()
            self._free(findings)
            raise KernelInternal(f"kernel {name!r}:\n{device.describe_findings(text)}")
