"""Array intake: an immutable, zero-copy view of any library's array, without importing the library.

NumPy, CuPy and torch arrays are read through their own attributes, others through DLPack or
`__cuda_array_interface__`. Streams are not synchronised here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..errors import BaracudaError, InvalidProblem, MisalignedOperand, Unsupported
from ..values import as_int, ints, kind_of, name_of, one_line
from .axes import contiguous_strides
from .element import BY_NUMPY, ELEMENTS, ElementKind
from .tensor_view import TensorView, byte_range, check_span, may_share, overlaps_itself, same_view, vetted

__all__ = [
    "PLACES",
    "TensorRef",
    "TensorView",
    "by_ancestry",
    "byte_range",
    "check_span",
    "may_share",
    "memory_of",
    "numpy_bases",
    "overlaps_itself",
    "same_view",
    "view",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor laid over a 1-D array: element strides and the offset of its first element.

    `data` is the whole buffer: anything beyond it is out of bounds, even in the same allocation. Checked by `view`.
    """

    data: object
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None  # None: row-major
    offset: int = 0


def view(array: object, name: str) -> TensorView:
    """View of `array` without a copy; messages call it `name`.

    Raises InvalidProblem if it is not a strided array, Unsupported for its dtype or device, MisalignedOperand if its
    pointer or byte strides are not multiples of the element size. Bounds are left to `check_span`.
    """
    try:
        reader = _READERS.get(type(array))
        if reader is None:
            reader = _READERS[type(array)] = _reader_of(type(array), name)
            PLACES[type(array)] = _PLACES_BY.get(reader, _viewed)
        return reader(array, name)
    except BaracudaError:
        raise
    except Exception as error:  # an object's own protocol methods may raise anything
        reason = f"{type(error).__name__}: {one_line(error)}".removesuffix(": ")
        raise InvalidProblem(
            f"{name!r} of type {kind_of(array)} cannot be read ({reason}); pass another array"
        ) from error


def by_ancestry(kind: type, table: Mapping[str, T]) -> T | None:
    """The row of the nearest base class of `kind` that `table` names as "module.Class", if any."""
    names = (f"{c.__module__}.{c.__qualname__}" for c in kind.__mro__)
    return next((table[name] for name in names if name in table), None)


Reader = Callable[[Any, str], TensorView]
Place = tuple[Any, ...]
Placer = Callable[[Any], Place]
Size = tuple[ElementKind, int]  # and its bytes
_SIZES: dict[np.dtype[Any], Size] = {dtype: (kind, kind.row.bytes) for dtype, kind in BY_NUMPY.items()}
_TORCH_SIZES: dict[object, Size] = {}  # by torch.dtype, filled on sight
_TORCH_LAZY: set[object] = set()  # torch.dtypes of tensors that may be lazy conjugates, filled on sight
_TORCH_DEVICES: dict[object, str] = {}  # by torch.device, filled on sight
_CUDA = tuple(f"cuda:{ordinal}" for ordinal in range(64))


def _address(array: np.ndarray[Any, Any]) -> int:
    # In NumPy's C ABI the data pointer follows PyObject_HEAD; `array.ctypes.data` takes nine times as long.
    return _pointer_at(id(array) + _HEAD).value or 0


_HEAD = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address
_new = tuple.__new__  # a named tuple's own constructor takes twice as long


def _numpy(array: np.ndarray[Any, Any], name: str) -> TensorView:
    row = _SIZES.get(array.dtype)
    if row is None:
        _refuse_dtype(array.dtype, name)
    element, itemsize = row
    pointer = _address(array)
    shape = array.shape
    strides = _in_elements(array.strides, itemsize)
    if strides is None or pointer & (itemsize - 1):  # item sizes are powers of two
        strides = _settle(name, pointer, shape, array.strides, itemsize)
    capacity = (0, array.size) if array.base is None else _numpy_capacity(array, name, pointer, itemsize)
    readonly = not array.flags.writeable
    return _new(TensorView, (pointer, shape, strides, element, "host", readonly, capacity, array))


def _derived(array: np.ndarray[Any, Any], name: str) -> TensorView:
    # As NumPy itself knows it: a class that derives from its arrays may say anything of its own.
    return _numpy(np.ndarray.view(array, np.ndarray), name)._replace(owner=array)


def _bases(array: object) -> Iterator[Any]:
    """The array's base, that one's base, and so on; at most `_DEEPEST` + 1."""
    for _ in range(_DEEPEST + 1):
        array = _base_of(array) if _is_numpy(array) else getattr(array, "base", None)  # as `as_strided` has
        if array is None:
            return
        yield array


def numpy_bases(array: object) -> list[Any]:
    """The array, if it is NumPy's, and its bases. While one is weakly referenced, NumPy does not move its memory:
    `resize` raises.
    """
    return [base for base in (array, *_bases(array)) if _is_numpy(base)] if _is_numpy(array) else []


def memory_of(array: np.ndarray[Any, Any]) -> Callable[[], tuple[int | None, int]]:
    """A function that returns an array's address and size in bytes, in 0.1 us."""
    pointer = _pointer_at(id(array) + _HEAD)
    return lambda: (pointer.value, _nbytes_of(array))


def _numpy_capacity(array: np.ndarray[Any, Any], name: str, pointer: int, itemsize: int) -> tuple[int, int] | None:
    owner: Any = array.base
    if type(owner) is not np.ndarray or owner.base is not None:
        bases = list(_bases(array))
        if len(bases) > _DEEPEST:
            raise InvalidProblem(f"{name!r} lies on more than {_DEEPEST} objects, each the base of another; copy it")
        owner = bases[-1]
    if not _is_numpy(owner):
        try:
            owner = np.frombuffer(owner, np.uint8)
        except (TypeError, ValueError, BufferError):  # no buffer of bytes: a capsule, another library's array
            return None
    before = pointer - _address(owner)
    return before // itemsize, (_nbytes_of(owner) - before) // itemsize


def _is_numpy(owner: object) -> bool:
    return issubclass(type(owner), np.ndarray)  # what `isinstance` asks, an object may answer


_DEEPEST = 64  # bases of an array
_base_of: Callable[[Any], Any] = np.ndarray.base.__get__
_nbytes_of: Callable[[Any], int] = np.ndarray.nbytes.__get__


def _cupy(array: Any, name: str) -> TensorView:
    row = _SIZES.get(array.dtype)
    if row is None:
        _refuse_dtype(array.dtype, name)
    element, itemsize = row
    data = array.data
    memory, pointer, shape = data.mem, data.ptr, array.shape
    strides = _in_elements(array.strides, itemsize)
    if strides is None or pointer & (itemsize - 1):  # item sizes are powers of two
        strides = _settle(name, pointer, shape, array.strides, itemsize)
    before = pointer - memory.ptr
    capacity = (before // itemsize, (memory.size - before) // itemsize)
    device = _CUDA[data.device_id]
    return vetted(TensorView(pointer, shape, strides, element, device, False, capacity, array), name)


def _cupy_place(array: Any) -> Place:
    data = array.data
    memory = data.mem
    return data.ptr, array.shape, array.strides, array.dtype, data.device_id, memory.ptr, memory.size, type(array)


def _torch(tensor: Any, name: str) -> TensorView:
    try:
        pointer, shape, strides = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
        offset, storage_bytes = tensor.storage_offset(), tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError) as error:  # sparse, nested, fake: no strided memory
        reason = str(error).partition("\n")[0]
        raise InvalidProblem(f"{name!r} has no strided memory ({reason}); pass a dense tensor") from error
    element, itemsize = _TORCH_SIZES.get(tensor.dtype) or _torch_size(tensor.dtype, name)
    device = _TORCH_DEVICES.get(tensor.device) or _torch_device(tensor.device, name)
    if tensor.is_neg() or (itemsize >= 8 and tensor.is_conj()):
        raise InvalidProblem(f"{name!r} is a lazy conjugate or negative; pass resolve_conj().resolve_neg()")
    if pointer & (itemsize - 1) or not pointer:
        _check_pointer(name, pointer, shape, itemsize)
    capacity = (offset, storage_bytes // itemsize - offset)
    return vetted(TensorView(pointer, shape, strides, element, device, False, capacity, tensor), name)


def _torch_place(tensor: Any) -> Place:
    if (dtype := tensor.dtype) in _TORCH_LAZY:
        return _viewed(tensor)
    # Not how far its storage goes: a tensor lies within it, and one that is made smaller moves.
    return tensor.data_ptr(), tensor.shape, tensor.stride(), dtype, tensor.device, tensor.is_neg(), type(tensor)


def _torch_size(dtype: object, name: str) -> Size:
    tags = {str(e.numpy): e for e in ELEMENTS.values()}  # torch and NumPy spell all of them alike
    row = tags.get(str(dtype).removeprefix("torch."))
    if row is None:
        _refuse_dtype(dtype, name)
    if row.numpy.kind == "c":
        _TORCH_LAZY.add(dtype)
    return _TORCH_SIZES.setdefault(dtype, (row.kind, row.bytes))


def _viewed(array: Any) -> Place:
    tensor = view(array, "array")
    return tensor[:7], type(tensor.owner)


def _torch_device(device: Any, name: str) -> str:
    kinds = {"cpu": "host", "cuda": f"cuda:{device.index}"}
    if device.type not in kinds:
        raise Unsupported(f"{name!r} is on device {str(device)!r}; tensors must be on 'cpu' or 'cuda'")
    return _TORCH_DEVICES.setdefault(device, kinds[device.type])


def _exported(array: Any, name: str) -> TensorView:
    from cuda.core.utils import StridedMemoryView

    try:
        memory = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
        pointer, shape, dtype, strides = memory.ptr, tuple(memory.shape), memory.dtype, memory.strides
    except Exception as error:
        reason = one_line(error) or type(error).__name__
        raise InvalidProblem(
            f"{name!r} of type {one_line(type(array).__name__)} could not export its memory: {reason}"
        ) from error
    row = _SIZES.get(dtype)
    if row is None:
        _refuse_dtype(dtype, name)
    element, itemsize = row
    _check_pointer(name, pointer, shape, itemsize)
    device = f"cuda:{memory.device_id}" if memory.is_device_accessible else "host"
    if strides is None:
        strides = contiguous_strides(shape)
    else:  # negative byte strides come back divided as if they were unsigned
        strides = tuple(((s * itemsize + 2**63) % 2**64 - 2**63) // itemsize for s in strides)
    return vetted(TensorView(pointer, shape, strides, element, device, memory.readonly, None, memory), name)


def _reference(ref: TensorRef, name: str) -> TensorView:
    data = view(ref.data, name)
    shape, offset = ints(f"the shape of {name!r}", ref.shape), as_int(f"{name}.offset", ref.offset)
    strides = contiguous_strides(shape) if ref.strides is None else _steps(ref.strides, name)
    if len(data.shape) != 1 or (data.shape[0] > 1 and data.strides != (1,)):
        layout = f"shape {data.shape} and strides {data.strides}"
        raise InvalidProblem(f"{name!r} lies over data of {layout}; pass 1-D data of stride 1")
    if len(strides) != len(shape) or min(shape, default=0) < 0:
        raise InvalidProblem(
            f"{name!r} has shape {shape} and strides {strides}; pass a stride per extent, and extents >= 0"
        )
    pointer = data.pointer + offset * ELEMENTS[data.element].bytes
    capacity = (offset, data.shape[0] - offset)
    tensor = TensorView(pointer, shape, strides, data.element, data.device, data.readonly, capacity, data.owner)
    return vetted(tensor, name)


def _steps(strides: object, name: str) -> tuple[int, ...]:
    return ints(f"the strides of {name!r}", strides, bits=128)  # an axis that never moves may have any stride


def _tensor_view(tensor: TensorView, name: str) -> TensorView:
    tensor = vetted(tensor, name)
    _check_pointer(name, tensor.pointer, tensor.shape, ELEMENTS[tensor.element].bytes)
    return tensor


@lru_cache(maxsize=4096)
def _in_elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    if any(stride % itemsize for stride in strides):
        return None
    return tuple(stride // itemsize for stride in strides)


def _settle(
    name: str, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    _check_pointer(name, pointer, shape, itemsize)
    moving = [0 if extent <= 1 or 0 in shape else s for extent, s in zip(shape, strides, strict=True)]
    settled = _in_elements(tuple(moving), itemsize)  # axes that never move may have any stride
    if settled is None:
        raise MisalignedOperand(f"{name!r} has byte strides {strides}; they must be multiples of {itemsize}")
    return settled


def _check_pointer(name: str, pointer: int, shape: tuple[int, ...], itemsize: int) -> None:
    if 0 in shape:
        return
    if not pointer:
        raise InvalidProblem(f"{name!r} of shape {shape} has a null pointer; pass an array that has memory")
    if pointer % itemsize:
        raise MisalignedOperand(f"{name!r} starts at {pointer:#x}; it must start at a multiple of {itemsize} bytes")


def _refuse_dtype(dtype: object, name: str) -> NoReturn:
    if getattr(dtype, "byteorder", "=") == ">":
        raise Unsupported(f"{name!r} has big-endian dtype {one_line(dtype)}; convert it with astype")
    raise Unsupported(f"{name!r} has dtype {one_line(dtype)}; supported are {', '.join(str(d) for d in _SIZES)}")


def _reader_of(kind: type, name: str) -> Reader:
    if by_ancestry(kind, _MASKED):
        raise InvalidProblem(f"{name!r} is a masked array, whose mask no kernel reads; pass its data or filled()")
    reader = _derived if issubclass(kind, np.ndarray) else by_ancestry(kind, _LIBRARIES)
    if reader is not None:
        return reader
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__"):
        return _exported
    raise InvalidProblem(
        f"{name!r} is of type {name_of(kind)}; pass a NumPy, CuPy or torch array, an "
        f"object with __dlpack__ or __cuda_array_interface__, or a TensorRef"
    )


_MASKED = {"numpy.ma.MaskedArray": True, "numpy.ma.core.MaskedArray": True}  # by name: numpy.ma takes 12 ms to import
_LIBRARIES: dict[str, Reader] = {"cupy.ndarray": _cupy, "torch.Tensor": _torch}
_PLACES_BY: dict[Reader, Placer] = {_cupy: _cupy_place, _torch: _torch_place}
# By type, filled on sight. A place is what a view is made of, and the type: equal places make views that are equal but
# for their owner. Finding one takes half as long as making the view, and an error in it is an error of the view.
PLACES: dict[type, Placer] = {np.ndarray: _viewed, TensorView: _viewed, TensorRef: _viewed}
_READERS: dict[type, Reader] = {np.ndarray: _numpy, TensorView: _tensor_view, TensorRef: _reference}
