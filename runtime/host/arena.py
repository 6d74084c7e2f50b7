"""Arrays of the host device: each in its own mapping, between guard pages and surrounded by poison."""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref

import numpy as np
import numpy.typing as npt

from ..device import WatchedArray
from ..errors import DriverError, InvalidProblem, KernelInternal

_PAGE = mmap.PAGESIZE
_POISON = 0xFF  # all ones read as NaN in every floating type
_PROT_NONE = 0
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's value, where Python does not name it
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE

Shape = int | tuple[int, ...]
Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Mapping(mmap.mmap):
    """Whole pages between two potential guard pages; unmapped when its last array dies."""

    address: int
    start: int  # offset of the array's first byte
    nbytes: int
    poisoned: bool

    @property
    def inside(self) -> slice:
        return slice(_PAGE, len(self) - _PAGE)


class Arena:
    """Allocates arrays and finds the array nearest to a faulting address."""

    def __init__(self) -> None:
        self._mappings: weakref.WeakSet[_Mapping] = weakref.WeakSet()

    def empty(self, shape: Shape, dtype: npt.DTypeLike, *, guard: bool, align_end: bool) -> Array:
        """A poisoned array that ends, or else begins, at a page boundary."""
        kind = np.dtype(dtype)
        nbytes = math.prod((shape,) if isinstance(shape, int) else shape) * kind.itemsize
        mapping = self._map(nbytes, guard=guard, align_end=align_end)
        mapping.poisoned = True
        np.frombuffer(mapping, np.uint8)[mapping.inside] = _POISON
        return np.ndarray(shape, kind, buffer=mapping, offset=mapping.start)

    def sparse(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Zeros that take memory page by page, when first touched."""
        mapping = self._map(nbytes, guard=True, align_end=False)
        mapping.madvise(mmap.MADV_NOHUGEPAGE)
        return np.ndarray(nbytes, np.uint8, buffer=mapping, offset=mapping.start)

    def check_canaries(self, array: Array) -> None:
        """Raise KernelInternal if a byte between the array and its guard pages was overwritten."""
        mapping = _mapping_of(array)
        inside = np.frombuffer(mapping, np.uint8)[mapping.inside]
        first = mapping.start - _PAGE
        for offset, padding in ((-first, inside[:first]), (mapping.nbytes, inside[first + mapping.nbytes :])):
            damaged = np.flatnonzero(padding != _POISON)
            if damaged.size:
                position = _relative(offset + int(damaged[0]), mapping.nbytes)
                raise KernelInternal(f"{damaged.size} bytes around an array overwritten, the first {position}")

    def describe(self, address: int) -> str:
        """Where `address` lies relative to the nearest array; empty if none is near."""
        for mapping in list(self._mappings):
            if mapping.address <= address < mapping.address + len(mapping):
                return _relative(address - mapping.address - mapping.start, mapping.nbytes)
        return ""

    def watched_arrays(self) -> list[WatchedArray]:
        """All arrays, as readable and writable."""
        return [
            WatchedArray(f"array of {m.nbytes} bytes", "inout", m.address + m.start, (m.nbytes,), (1,), 1)
            for m in self._mappings
            if m.nbytes
        ]

    def _map(self, nbytes: int, *, guard: bool, align_end: bool) -> _Mapping:
        if nbytes < 0:
            raise InvalidProblem(f"an array cannot have {nbytes} bytes")
        pages = -(-nbytes // _PAGE) * _PAGE
        try:
            mapping = _Mapping(-1, pages + 2 * _PAGE, flags=_FLAGS)
        except OSError as error:
            raise DriverError(f"the host device cannot map {nbytes} bytes: {error.strerror}") from error
        mapping.address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        mapping.start = _PAGE + (pages - nbytes if align_end else 0)
        mapping.nbytes, mapping.poisoned = nbytes, False
        if guard:
            for edge in (mapping.address, mapping.address + _PAGE + pages):
                if _libc.mprotect(edge, _PAGE, _PROT_NONE):
                    raise DriverError("the host device cannot protect a page; raise vm.max_map_count")
        self._mappings.add(mapping)
        return mapping


def _mapping_of(array: Array) -> _Mapping:
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, _Mapping) or not owner.poisoned:
        raise InvalidProblem("canaries surround only arrays that HostDevice.empty returned")
    return owner


def _relative(offset: int, nbytes: int) -> str:
    """Describe `offset`, counted from the first byte of an array of `nbytes` bytes."""
    if offset < 0:
        return f"{-offset} bytes before an array of {nbytes} bytes"
    return f"{offset - nbytes} bytes past the end of an array of {nbytes} bytes"
