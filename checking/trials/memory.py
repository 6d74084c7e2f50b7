"""Tensors laid out in memory on purpose: any strides, poisoned surroundings, and proof of what a kernel touched."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from baracuda.runtime import DriverError, ElementKind, TensorView
from baracuda.runtime.arrays.axes import contiguous_strides, span

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
POISON = 0xA5  # neither NaN nor zero nor any number a test would draw, in every element type
CANARY_BYTES = 256


class Buffer(Protocol):
    """Memory of a device, seen from the host."""

    pointer: int

    def write(self, data: Bytes) -> None: ...
    def read(self) -> Bytes: ...


class Vast(Protocol):
    """Memory too large to copy, written and read in pieces."""

    pointer: int

    def write(self, offset: int, data: Bytes) -> None: ...
    def read(self, offset: int, nbytes: int) -> Bytes: ...


class Memory(Protocol):
    """Where buffers come from; `name` is the device's."""

    name: str

    def allocate(self, nbytes: int) -> Buffer: ...
    def vast(self, nbytes: int) -> Vast:
        """Gigabytes of which only a few pieces will be looked at."""

    def finish(self) -> None:
        """Wait for launches and raise what they did wrong."""


class _HostBuffer:
    def __init__(self, array: Bytes) -> None:
        self.array, self.pointer = array, array.ctypes.data

    def write(self, data: Bytes) -> None:
        self.array[:] = data

    def read(self) -> Bytes:
        return self.array.copy()


class _HostVast:
    """Address space; the system gives it memory where it is touched."""

    def __init__(self, array: Bytes) -> None:
        self.array, self.pointer = array, array.ctypes.data

    def write(self, offset: int, data: Bytes) -> None:
        self.array[offset : offset + data.size] = data

    def read(self, offset: int, nbytes: int) -> Bytes:
        return self.array[offset : offset + nbytes].copy()


class HostMemory:
    """The host device's arena: a buffer ends at a page that must not be touched."""

    name = "host"

    def __init__(self) -> None:
        from baracuda.runtime import get_device

        self.device: Any = get_device("host")

    def allocate(self, nbytes: int) -> Buffer:
        return _HostBuffer(self.device.empty(max(nbytes, 1), np.uint8))

    def vast(self, nbytes: int) -> Vast:
        return _HostVast(self.device.sparse(nbytes))

    def finish(self) -> None:
        return None

    @contextmanager
    def multiprocessors(self, count: int) -> Iterator[None]:
        """The device has so many meanwhile; plans that ran before remember another number."""
        before, self.device.multiprocessors = self.device.multiprocessors, count
        try:
            yield
        finally:
            self.device.multiprocessors = before


class _CudaBuffer:
    def __init__(self, array: Any) -> None:
        self.array, self.pointer = array, int(array.data.ptr)

    def write(self, data: Bytes) -> None:
        self.array.set(data)

    def read(self) -> Bytes:
        return self.array.get()  # type: ignore[no-any-return]


class _CudaVast:
    """Address space of a GPU; memory is mapped around what is written, for several processes at once may want one."""

    _MARGIN = 256  # bytes beside what is written that kernels may load, as parts of packs

    def __init__(self, cupy: Any, nbytes: int) -> None:
        from cuda.bindings import driver

        self.cupy, self.driver, self.mapped = cupy, driver, dict[int, Any]()
        device = cupy.cuda.Device().id
        place = driver.CUmemLocation()
        place.type, place.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, device
        self.kind, self.access = driver.CUmemAllocationProp(), driver.CUmemAccessDesc()
        self.kind.type, self.kind.location = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED, place
        self.access.location = place
        self.access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granule = int(self._called(driver.cuMemGetAllocationGranularity(self.kind, least)))
        self.size = (-(-nbytes // self.granule) + 2) * self.granule  # one before and one behind
        self.base = int(self._called(driver.cuMemAddressReserve(self.size, 0, 0, 0)))
        self.pointer = self.base + self.granule
        weakref.finalize(self, _unmap, driver, self.base, self.size, self.granule, self.mapped)

    def write(self, offset: int, data: Bytes) -> None:
        first, last = offset - self._MARGIN, offset + data.size + self._MARGIN
        for number in range(first // self.granule, last // self.granule + 1):
            if number not in self.mapped:
                self._map(number)
        self._array(offset, data.size).set(data)

    def read(self, offset: int, nbytes: int) -> Bytes:
        return self._array(offset, nbytes).get()  # type: ignore[no-any-return]

    def _map(self, number: int) -> None:
        driver, address = self.driver, self.pointer + number * self.granule
        memory = self._called(driver.cuMemCreate(self.granule, self.kind, 0))
        self._called(driver.cuMemMap(address, self.granule, 0, memory, 0))
        self._called(driver.cuMemSetAccess(address, self.granule, [self.access], 1))
        self.mapped[number] = memory

    def _array(self, offset: int, nbytes: int) -> Any:
        memory = self.cupy.cuda.UnownedMemory(self.pointer + offset, nbytes, self)
        return self.cupy.ndarray(nbytes, np.uint8, self.cupy.cuda.MemoryPointer(memory, 0))

    @staticmethod
    def _called(result: tuple[Any, ...]) -> Any:
        code, *values = result
        if code:
            raise DriverError(f"the CUDA driver says {code.name} of an address space for tests")
        return values[0] if values else None


def _unmap(driver: Any, base: int, size: int, granule: int, mapped: dict[int, Any]) -> None:
    for number, memory in mapped.items():
        driver.cuMemUnmap(base + (number + 1) * granule, granule)
        driver.cuMemRelease(memory)
    driver.cuMemAddressFree(base, size)


class CudaMemory:
    """Device memory, through CuPy."""

    name = "cuda:0"

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy

    def allocate(self, nbytes: int) -> Buffer:
        return _CudaBuffer(self.cupy.empty(max(nbytes, 1), np.uint8))

    def vast(self, nbytes: int) -> Vast:
        return _CudaVast(self.cupy, nbytes)

    def finish(self) -> None:
        self.cupy.cuda.get_current_stream().synchronize()


@contextmanager
def _device_with(name: str, value: object) -> Iterator[HostMemory]:
    """Memory of the host device, one attribute of which is another meanwhile."""
    memory = HostMemory()
    before = getattr(memory.device, name)
    setattr(memory.device, name, value)
    try:
        yield memory
    finally:
        setattr(memory.device, name, before)


def check_mode() -> AbstractContextManager[HostMemory]:
    """Memory of the host device, which is in check mode meanwhile."""
    return _device_with("check", True)


def gpu_text(target: str | None) -> AbstractContextManager[HostMemory]:
    """Memory of the host device, which meanwhile runs the text that headers have for `target`, or for itself."""
    return _device_with("gpu_text", target)


@contextmanager
def coverage(folder: Path) -> Iterator[HostMemory]:
    """Memory of the host device, whose kernels count the branches they take in `folder` meanwhile."""
    with _device_with("coverage", folder) as memory:
        try:
            yield memory
        finally:
            memory.device.write_counts()  # a process of pytest-xdist may be killed before it unloads them


def memory_of(device: str) -> Memory:
    """The memory of "host" or "cuda"."""
    return HostMemory() if device == "host" else CudaMemory()


@dataclass
class Placed:
    """A tensor in a buffer of its own, with what surrounds it."""

    view: TensorView
    buffer: Buffer
    before: Bytes
    addressed: np.ndarray[Any, np.dtype[np.bool_]]  # per byte: does it belong to an element?

    def values(self) -> np.ndarray[Any, Any]:
        """The tensor as it is now, row-major."""
        return self._elements(self.buffer.read()).copy()

    def _elements(self, data: Bytes) -> np.ndarray[Any, Any]:
        row = self.view.element.row
        start = self.view.pointer - self.buffer.pointer
        flat = np.ndarray((0,), row.numpy, data.data) if not data.size else data
        return np.ndarray(
            self.view.shape, row.numpy, flat.data, start, [s * row.bytes for s in self.view.strides]
        )

    def check_surroundings(self, name: str, *, written: bool) -> None:
        """Raise AssertionError if anything was written that is no element, or anything at all of an input."""
        now = self.buffer.read()
        changed = (now != self.before) & (~self.addressed if written else True)
        if changed.any():
            offset = int(np.argmax(changed)) - (self.view.pointer - self.buffer.pointer)
            location = "beside its elements" if written else "although it is an input"
            raise AssertionError(f"{name!r} was written to {location}: byte {offset} from its first element")


def place(
    memory: Memory,
    shape: tuple[int, ...],
    element: ElementKind,
    strides: Sequence[int] | None = None,
    values: np.ndarray[Any, Any] | None = None,
    shift: int = 0,
) -> Placed:
    """Lay out a tensor with element `strides`, `shift` elements off the usual alignment; no `values` leaves poison."""
    itemsize = element.row.bytes
    strides = tuple(contiguous_strides(shape) if strides is None else strides)
    low, high = span(shape, strides)
    lead = CANARY_BYTES + (-low * itemsize + 255) // 256 * 256 + shift * itemsize
    tail = CANARY_BYTES + (-(lead + high * itemsize)) % 256
    buffer = memory.allocate(lead + high * itemsize + tail)
    view = TensorView(buffer.pointer + lead, shape, strides, element, memory.name, False, None, buffer)
    data = np.full(lead + high * itemsize + tail, POISON, np.uint8)
    mask = np.zeros(data.size, np.bool_)
    placed = Placed(view, buffer, data, mask)
    element_mask = np.ndarray(
        (*shape, itemsize), np.bool_, mask.data, lead, [*(s * itemsize for s in strides), 1]
    )
    element_mask[...] = True
    if values is not None:
        placed._elements(data)[...] = values
    buffer.write(data)
    return placed


Pattern = Callable[[tuple[int, ...], int], tuple[tuple[int, ...], int]]  # (shape, vec) -> (strides, shift)


def _gap(shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    """Every outer axis longer in memory than in the tensor, rows still aligned."""
    padded = [*(n + 1 for n in shape[:-1]), -(-shape[-1] // vec) * vec + vec] if shape else []
    return contiguous_strides(padded), 0


def _step(shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    return tuple(2 * s for s in contiguous_strides(shape)), 1


def _reversed(shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    return tuple(-s for s in contiguous_strides(shape)), 0


def _transposed(shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    return tuple(reversed(contiguous_strides(shape[::-1]))), 0


def _odd(shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    """Rows of odd pitch, one element off."""
    padded = [*shape[:-1], shape[-1] + 1 + shape[-1] % 2] if shape else []
    return contiguous_strides(padded), 1


def _pitch(shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    """Rows of odd pitch, the first of them aligned."""
    return _odd(shape, vec)[0], 0


def _outer(shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    """Without gaps but for one element between slices along the first axis."""
    first, *rest = contiguous_strides(shape) if shape else (0,)
    return ((first + 1, *rest) if len(shape) > 1 else tuple(contiguous_strides(shape))), 0


def laid_out(pattern: str, shape: tuple[int, ...], vec: int, layout: str) -> tuple[tuple[int, ...], int]:
    """Strides and shift of a tensor laid out by `pattern`, as far as its argument's `layout` allows."""
    if layout == "contiguous":
        return contiguous_strides(shape), int(pattern == "shifted")
    if pattern in LONE and (layout == "any" or len(shape) > 1):
        return LONE[pattern](shape, vec)
    if layout == "any" or len(shape) < 2:
        return PATTERNS[pattern if layout == "any" or pattern in ("shifted", "odd") else "contiguous"](shape, vec)
    strides, shift = PATTERNS[pattern](shape[:-1], 1)  # of rows, which stay as they are
    last = shape[-1]
    pitch = {"gap": -(-last // vec) * vec + vec, "odd": last + 1 + last % 2}.get(pattern, last)
    return (*(s * pitch for s in strides), 1), shift


def packed_along(axis: int, pattern: str, shape: tuple[int, ...], vec: int) -> tuple[tuple[int, ...], int]:
    """Strides of a tensor whose neighbours along `axis` are neighbours in memory, with gaps or without."""
    turned = (*shape[:axis], *shape[axis + 1 :], shape[axis])
    strides, _ = PATTERNS["gap" if pattern not in ("contiguous", "shifted") else "contiguous"](turned, vec)
    return (*strides[:axis], strides[-1], *strides[axis:-1]), 0


LONE: dict[str, Pattern] = {  # of one tensor among contiguous ones
    "shifted": lambda shape, vec: (contiguous_strides(shape), 1),
    "pitch": _pitch,
    "outer": _outer,
}
PATTERNS: dict[str, Pattern] = {
    "contiguous": lambda shape, vec: (contiguous_strides(shape), 0),
    "gap": _gap,
    "shifted": LONE["shifted"],
    "odd": _odd,
    "step": _step,
    "reversed": _reversed,
    "transposed": _transposed,
}
