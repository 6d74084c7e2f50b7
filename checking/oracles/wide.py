"""The type that oracles compute in."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda.runtime import ElementKind


def wide_type(element: ElementKind) -> np.dtype[Any]:
    """float64, or long double for f64 elements; integers, bools and complex numbers keep their type."""
    row = element.row
    if element.value[0] == "c" or (not row.unit_roundoff):
        return row.numpy
    return np.dtype(np.longdouble if row.acc == ElementKind.F64 else np.float64)
