"""Arrays as .npy files.

NumPy's format lacks bf16 and the like, which are saved as bits, and portable long doubles, which are saved as the sum
of two doubles.
"""

from __future__ import annotations

import io
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy

from baracuda.runtime import ElementKind
from baracuda.runtime.arrays.element import BY_NUMPY

Array = np.ndarray[Any, Any]
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def kind_of(array: Array) -> str:
    """The declared content of an array's file."""
    return "sum" if array.dtype.char in "gG" else str(BY_NUMPY[array.dtype])


def packed(array: Array) -> bytes:
    """The file of an array."""
    if array.dtype.char in "gG":
        near = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        with np.errstate(invalid="ignore"):
            array = np.stack([near, np.where(np.isfinite(near), array - near, 0).astype(near.dtype)])
    elif array.dtype.isbuiltin != 1:
        array = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    data = io.BytesIO()
    npy.write_array(data, array, allow_pickle=False)
    return data.getvalue()


def unpacked(data: bytes, kind: str) -> Array:
    """The array of a file; ValueError for another kind."""
    array = _array(data)
    if kind == "sum":
        return _summed(array)
    numpy = ElementKind.of(kind, "kind of numbers").row.numpy
    return array.copy() if array.dtype == numpy else array.copy().view(numpy)


def _summed(parts: Array) -> Array:
    """The sum of both parts in long double."""
    if parts.dtype.char not in "dD":
        raise ValueError(f"a sum of numbers of dtype {parts.dtype}")
    near, rest = parts
    total = np.array(near, np.clongdouble if parts.dtype.kind == "c" else np.longdouble)
    total += rest
    return total


def _array(data: bytes) -> Array:
    """NumPy's view of the bytes, so that nothing is allocated for missing data."""
    stream = io.BytesIO(data)
    shape, by_columns, dtype = _HEADERS[npy.read_magic(stream)](stream)
    if dtype.kind not in "biufc" or not dtype.isnative:
        raise ValueError(f"numbers of dtype {dtype}")
    flat = np.frombuffer(data, dtype, offset=stream.tell())
    if min(shape, default=0) < 0 or prod(shape) != flat.size:
        raise ValueError(f"{flat.size} numbers for an array of shape {shape}")
    return flat.reshape(shape, order="F" if by_columns else "C")
