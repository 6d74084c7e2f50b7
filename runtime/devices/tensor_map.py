"""Tensor maps: how the copy engine of sm_90 and later is told of a tensor, through the driver alone.

A kernel's map is a part of its argument struct. cuda.core's TensorMapDescriptor does not give its bytes, and it takes
neither axes of stride 0 nor a view without its array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache, lru_cache, partial
from typing import Any

from ..arrays.element import ELEMENTS, ElementKind
from ..arrays.tensor_view import TensorView
from ..errors import DriverError, Unsupported
from .driver import INVALID_CONTEXT, driver, error_text
from .named import get_device

__all__ = ["WORDS", "cannot_map", "encode"]

WORDS = 16  # CUtensorMap; in memory it starts at a multiple of 64 bytes, and so does a struct that holds one
_ALIGNMENT = 16  # of the first element and of every stride but the last, in bytes
_PANEL = 128  # bytes of a box's rows: what the swizzle of 128 bytes permutes
_AXES = 5
_STRIDES = 1 << 40  # bytes, exclusive
_EXTENTS = 1 << 31  # coordinates are signed

# CUtensorMapDataType
_TYPES = {
    ElementKind.U8: 0,
    ElementKind.I8: 0,
    ElementKind.U16: 1,
    ElementKind.I16: 1,
    ElementKind.U32: 2,
    ElementKind.I32: 3,
    ElementKind.U64: 4,
    ElementKind.I64: 5,
    ElementKind.F16: 6,
    ElementKind.F32: 7,
    ElementKind.F64: 8,
    ElementKind.BF16: 9,
    ElementKind.F8E4M3: 0,
    ElementKind.F8E5M2: 0,
}
_INTERLEAVE_NONE, _SWIZZLE_128B, _PROMOTION_256B, _FILL_ZERO = 0, 3, 3, 0


def cannot_map(view: TensorView, name: str) -> str | None:
    """Why TMA cannot address `view`, which messages call `name`; None if it can.

    Rows are the second to last axis. Axes before it may have stride 0: kernels use coordinate 0 there.
    """
    if view.element not in _TYPES:
        return f"{name!r} is of {view.element}, which tensor maps do not know"
    if not 2 <= len(view.shape) <= _AXES:
        return f"{name!r} has {len(view.shape)} axes, tensor maps have 2 to {_AXES}"
    if not all(0 < extent < _EXTENTS for extent in view.shape):
        return f"{name!r} has shape {view.shape}; extents must be 1 to {_EXTENTS - 1} for a tensor map"
    if view.pointer % _ALIGNMENT:
        return f"{name!r} starts at {view.pointer:#x}; a tensor map needs a multiple of {_ALIGNMENT} bytes"
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        return f"{name!r} has strides {view.strides}; a tensor map needs 1 along the last axis"
    size = ELEMENTS[view.element].bytes
    moving = [stride * size for extent, stride in zip(view.shape[:-1], view.strides[:-1], strict=True) if extent > 1]
    if any(stride % _ALIGNMENT or not 0 <= stride < _STRIDES for stride in moving):
        return (
            f"{name!r} has strides {view.strides}; a tensor map needs multiples of {_ALIGNMENT // size} "
            f"that are not negative and below {_STRIDES // size}"
        )
    if view.shape[-2] > 1 and view.strides[-2] == 0:
        return f"{name!r} has strides {view.strides}; a tensor map cannot repeat one row"
    return None


def encode(view: TensorView, box: Sequence[int]) -> tuple[int, ...]:
    """The tensor map of `view` as 16 signed words, for boxes of (rows, columns) that are copied panel by panel.

    A panel is 128 bytes of each row, with 128-byte swizzle, zero-filled beyond the tensor, however many columns the
    last one needs. Coordinates are (column, row, and the axes before in reverse order). Raises Unsupported for what
    `cannot_map` names and for boxes beyond the hardware, DriverError if the driver refuses.
    """
    return _encoded(view.pointer, view.shape, view.strides, view.element, tuple(box), view.device)


@lru_cache(maxsize=4096)
def _encoded(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    element: ElementKind,
    box: tuple[int, ...],
    device: str,
) -> tuple[int, ...]:
    # No owner: the cache must keep no memory alive.
    view = TensorView(pointer, shape, strides, element, "", True, None, None)
    if reason := cannot_map(view, "the tensor"):
        raise Unsupported(reason)
    size = ELEMENTS[element].bytes
    rows, columns = box
    panel = _PANEL // size
    if not 1 <= rows <= 256 or columns < 1:
        raise Unsupported(f"a tensor map's box has {rows} rows and {columns} columns; needs 1 to 256 rows and a column")
    rank = len(shape)
    # Axes that never move need a stride that the driver accepts.
    still = [extent == 1 or stride == 0 for extent, stride in zip(shape, strides, strict=True)]
    extents = [1 if fixed else extent for extent, fixed in zip(shape[:-1], still[:-1], strict=True)] + [shape[-1]]
    pitches = [_ALIGNMENT if fixed else stride * size for stride, fixed in zip(strides, still, strict=True)]
    memory = (c_int64 * (WORDS + 8))()
    start = -(-ctypes.addressof(memory) // 64) * 64
    on_host = device == "host"
    encode_map = partial(
        _function_of_host() if on_host else _function(),
        start,
        _TYPES[element],
        rank,
        pointer,
        (c_uint64 * rank)(*reversed(extents)),
        (c_uint64 * (rank - 1))(*reversed(pitches[:-1])),
        (c_uint32 * rank)(panel, rows, *[1] * (rank - 2)),
        (c_uint32 * rank)(*[1] * rank),
        _INTERLEAVE_NONE,
        _SWIZZLE_128B,
        _PROMOTION_256B,
        _FILL_ZERO,
    )
    code = encode_map()
    if code == INVALID_CONTEXT:  # this thread has none
        of: Any = get_device(device)
        with of.current():
            code = encode_map()
    if code:
        text = f"code {code}" if on_host else error_text(driver(), "cuTensorMapEncodeTiled", code)
        raise DriverError(f"{text}: shape {shape}, strides {strides}, box {box}")
    first = (start - ctypes.addressof(memory)) // 8
    return tuple(memory[first : first + WORDS])


@cache
def _function() -> Any:
    function = getattr(driver(), "cuTensorMapEncodeTiled", None)
    if function is None:
        raise DriverError("this CUDA driver knows no tensor maps; install one of CUDA 12 or newer")
    function.argtypes = (c_void_p, c_int, c_uint32, *[c_void_p] * 5, *[c_int] * 4)
    return function


def _function_of_host() -> Any:
    """The host device's encoder, which is called as the driver's."""
    device: Any = get_device("host")
    return device.tensor_map_encoder
