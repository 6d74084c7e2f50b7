"""The types that oracles compute in."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda.runtime import ElementKind


def wide_type(element: ElementKind) -> np.dtype[Any]:
    """float64, or long double for elements of doubles; of complex numbers, of their parts. Integers and bools keep
    their type.
    """
    row = element.row
    if not row.unit_roundoff:
        return row.numpy
    return np.dtype(np.longdouble if row.acc == ElementKind.F64 else np.float64)


def as_wide(array: np.ndarray[Any, Any], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Numbers in a real type, or the complex one of such parts; what is moved or whole stays what it is."""
    if array.dtype.kind in "iub" or kind.kind in "iub":
        return array
    if array.dtype.kind == "c":
        return array.astype(np.result_type(kind, np.complex64))
    return array.astype(np.float64).astype(kind)
