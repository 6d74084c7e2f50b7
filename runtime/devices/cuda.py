"""The CUDA device: loads cubins into its primary context and launches each kernel with one driver call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from ctypes import byref, c_void_p
from functools import cached_property, partial
from typing import Any, NoReturn

from ..compile.packed import packed_cubin
from ..device import Cubin, KernelSource, Resources
from ..errors import DriverError, InvalidProblem, KernelInternal
from ..observe import log, nvtx_range
from .driver import (
    INVALID_CONTEXT,
    INVALID_HANDLE,
    LaunchAttribute,
    LaunchConfig,
    call,
    current,
    driver,
    error_text,
    handle,
    query,
    stream_is_capturing,
)

__all__ = ["CudaDevice", "CudaKernel", "stream_is_capturing"]

_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_NUM_REGS = 4  # CU_FUNC_ATTRIBUTE_NUM_REGS
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_CONFIGS = 64  # launch configurations remembered per launch, one a stream
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_...: the kernel may start while the one before ends
_OVERLAPS_SINCE = 12040  # the driver version whose graphs record that, too

# What the driver answers, starting nothing, when another device's context is current, or none in its eyes. Asking it
# first what is current would take a tenth of a launch.
_ELSEWHERE = frozenset({INVALID_CONTEXT, INVALID_HANDLE})

_Parameters = c_void_p * 1


class CudaKernel:
    """A kernel with one parameter, loaded on one device; `resources` are from the assembler's report."""

    def __init__(
        self,
        source: KernelSource,
        device: str,
        context: int,
        function: int,
        parameter_bytes: int | None,
        resources: Resources,
        may_overlap: bool,
    ) -> None:
        self.symbol, self.resources, self._dynamic_shared = source.symbol, resources, source.dynamic_shared
        self._device, self._context = device, context
        self._function, self._parameter_bytes = function, parameter_bytes
        self._may_overlap = may_overlap
        # By item: a function of its own, without declared arguments, whose checks take longer than the call.
        self._launch = driver()["cuLaunchKernelEx"]

    def launch(self, grid: tuple[int, int, int], block: int, args: int, args_bytes: int, stream: int) -> None:
        """See `Kernel.launch`. The current context, if any, stays current.

        Raises InvalidProblem for a stream of another device, DriverError if the driver refuses for another reason,
        KernelInternal if the kernel's struct has another size.
        """
        self.prepared(grid, block, args, args_bytes, None)(stream)

    def prepared(
        self,
        grid: tuple[int, int, int],
        block: int,
        args: int,
        args_bytes: int,
        keep: object,
        overlaps: bool = False,
    ) -> Callable[[int], None]:
        """`launch` as a function of the stream alone; it keeps `keep` alive.

        With `overlaps`, it uses programmatic dependent launch. Configurations and the parameter array are immutable, so
        threads may call it concurrently.
        """
        self._check_bytes(args_bytes)
        parameters = _Parameters(args)
        launches: dict[int, Callable[[], int]] = {}

        def start(stream: int, _keep: object = keep) -> None:
            launch = launches.get(stream)
            if launch is None:
                if len(launches) >= _CONFIGS:
                    launches.clear()
                config = self._configure(grid, block, stream, overlaps and self._may_overlap)
                launch = launches[stream] = partial(self._launch, config, c_void_p(self._function), parameters, None)
            code = launch()
            if code in _ELSEWHERE:
                with current(self._context):
                    code = launch()
            if code:
                self._refused(grid, block, stream, code)

        return start

    def _check_bytes(self, args_bytes: int) -> None:
        if args_bytes != self._parameter_bytes is not None:
            needed = self._parameter_bytes
            raise KernelInternal(f"kernel {self.symbol!r} takes a struct of {needed} bytes, got {args_bytes}")

    def _check_stream(self, stream: int) -> None:
        """Reject a stream of another context: the driver would only report an invalid handle."""
        owner = c_void_p()
        with current(self._context):  # whose stream 0 is
            unknown = driver().cuStreamGetCtx(stream, byref(owner))
        if unknown or owner.value == self._context:
            return
        with current(owner.value or 0):
            device = f"cuda:{query('cuCtxGetDevice')}"
        owner_name = f"another context of {device}" if device == self._device else device
        needs = f"the arrays are on {self._device}; pass a stream of that device"
        raise InvalidProblem(f"kernel {self.symbol!r}: stream {stream:#x} is of {owner_name}, {needs}")

    def _refused(self, grid: tuple[int, int, int], block: int, stream: int, code: int) -> NoReturn:
        reason = error_text(driver(), "cuLaunchKernelEx", code)
        self._check_stream(stream)
        raise DriverError(f"kernel {self.symbol!r}, grid {grid}, block {block}: {reason}")

    def _configure(self, grid: tuple[int, int, int], block: int, stream: int, overlaps: bool) -> Any:
        if max(*grid, block) >> 31:
            raise DriverError(f"kernel {self.symbol!r}: grid {grid} of {block} threads is beyond 2147483647")
        attribute = LaunchAttribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1) if overlaps else None
        address = ctypes.addressof(attribute) if attribute else None
        config = LaunchConfig(grid, (block, 1, 1), self._dynamic_shared, stream, address, int(overlaps))
        config.keep_alive = attribute
        return byref(config)


class CudaDevice:
    """`name` is "cuda:N", `arch` its compute capability. Making one creates no CUDA context; `load` does."""

    watch = None

    def __init__(self, ordinal: int = 0) -> None:
        """Raises DriverError if the machine has no driver or no such device."""
        count = query("cuDeviceGetCount")
        if not 0 <= ordinal < count:
            raise DriverError(f"no device 'cuda:{ordinal}': the driver shows {count}, numbered from 0")
        self.ordinal, self.name = ordinal, f"cuda:{ordinal}"
        self._device = query("cuDeviceGet", ordinal)
        major, minor = (query("cuDeviceGetAttribute", which, self._device) for which in _COMPUTE_CAPABILITY)
        self.arch = f"sm_{major}{minor}"
        self._may_overlap = major >= 9 and query("cuDriverGetVersion") >= _OVERLAPS_SINCE
        self.multiprocessors = query("cuDeviceGetAttribute", _MULTIPROCESSORS, self._device)
        self._kernels: dict[tuple[KernelSource, str], CudaKernel] = {}
        self._loading: dict[tuple[KernelSource, str], threading.Lock] = {}

    @staticmethod
    def count() -> int:
        """How many devices there are, none without a driver; creates no context."""
        try:
            return query("cuDeviceGetCount")
        except DriverError:
            return 0

    @staticmethod
    def available() -> bool:
        """Whether there is a device."""
        return CudaDevice.count() > 0

    def load(self, source: KernelSource, arch: str | None = None) -> CudaKernel:
        """Load `source`, from a pack or compiled, for `arch` (by default this device's; "sm_90a" if the code needs it).

        Raises CompileError, or DriverError if the device cannot run that architecture or is capturing a graph.
        """
        key = (source, arch or source.arch or self.arch)
        if kernel := self._kernels.get(key):
            return kernel
        with self._loading.setdefault(key, threading.Lock()):
            if (kernel := self._kernels.get(key)) is None:
                kernel = self._kernels[key] = self._load(*key)
        return kernel

    def is_loaded(self, source: KernelSource, arch: str | None = None) -> bool:
        """Whether `load` would return at once."""
        return (source, arch or source.arch or self.arch) in self._kernels

    def is_capturing(self, stream: int) -> bool:
        """Whether `stream` is being captured; never the legacy stream 0, which cannot be."""
        return bool(stream) and stream_is_capturing(stream)

    @cached_property
    def _context(self) -> int:
        # The one that CuPy, torch and the CUDA runtime use; kept for the life of the process, as they do.
        return handle("cuDevicePrimaryCtxRetain", self._device)

    def current(self) -> AbstractContextManager[None]:
        """Makes the device's primary context current in this thread, for a while."""
        return current(self._context)

    def _load(self, source: KernelSource, arch: str) -> CudaKernel:
        cubin = packed_cubin(source, arch) or compile_cubin(source, arch)
        with current(self._context), nvtx_range(f"load {source.symbol}"):
            # Never unloaded: a kernel may be in a captured graph long after Python has forgotten it.
            library = handle("cuLibraryLoadData", cubin.image, None, None, 0, None, None, 0)
            kernel = handle("cuLibraryGetKernel", library, source.symbol.encode())
            function = handle("cuKernelGetFunction", kernel)
            # The driver loads lazily; asking for an attribute loads now, so that graphs can record launches.
            query("cuFuncGetAttribute", _NUM_REGS, function)
            if source.dynamic_shared:  # set once, to the one size this kernel is launched with
                call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, source.dynamic_shared)
            parameter_bytes = _parameter_bytes(kernel)
        log.debug("loaded %s for %s on %s", source.symbol, arch, self.name)
        overlap = self._may_overlap
        return CudaKernel(source, self.name, self._context, function, parameter_bytes, cubin.resources, overlap)


def compile_cubin(source: KernelSource, arch: str) -> Cubin:
    """The code of `source`, compiled or from the cache; what compiles is imported only where packs lack a kernel."""
    from ..compile import cubin

    return cubin.compile_cubin(source, arch)


def _parameter_bytes(kernel: int) -> int | None:
    """Size of the kernel's first parameter; None if the driver (before CUDA 12.4) cannot say."""
    if not hasattr(driver(), "cuKernelGetParamInfo"):
        return None
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuKernelGetParamInfo", kernel, 0, byref(offset), byref(size))
    return size.value
