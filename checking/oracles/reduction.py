"""Reductions along the axes of a mask by kind, of NumPy: second opinions of the ops that reduce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .elementwise import Table

# Of arrays whose last axis has the cells to reduce.
REDUCTION: Table = {
    "sum": lambda x: np.sum(x, -1),
    "mean": lambda x: np.mean(x, -1),
    "sum_conj": lambda x: np.conj(np.sum(x, -1)),
    "prod": lambda x: np.prod(x, -1),
    "max": lambda x: np.max(x, -1, initial=-np.inf),
    "min": lambda x: np.min(x, -1, initial=np.inf),
    "norm1": lambda x: np.linalg.norm(x, 1, -1),
    "norm2": lambda x: np.linalg.norm(x, 2, -1),
    "norm_inf": lambda x: np.max(np.abs(x), -1, initial=-np.inf),
    "squares": lambda x: np.einsum("...i,...i", x, np.conj(x)).real,
    "argmax": lambda x: np.argmax(x, -1) if x.shape[-1] else np.full(x.shape[:-1], -1),
    "argmin": lambda x: np.argmin(x, -1) if x.shape[-1] else np.full(x.shape[:-1], -1),
    "any": lambda x: np.any(x, -1),
    "all": lambda x: np.all(x, -1),
    "any_nan": lambda x: np.any(np.isnan(x), -1),
    "all_finite": lambda x: np.all(np.isfinite(x), -1),
}
INT_REDUCTION: Table = {
    "sum": lambda x: np.sum(x, -1, dtype=np.int64),
    "prod": lambda x: np.prod(x, -1, dtype=np.int64),
    "max": lambda x: np.max(x.astype(np.int64), -1, initial=np.iinfo(np.int64).min),
    "min": lambda x: np.min(x.astype(np.int64), -1, initial=np.iinfo(np.int64).max),
    "count_nonzero": lambda x: np.count_nonzero(x, -1),
}


def reduced(fields: Mapping[str, Any], x: Any, table: Table = REDUCTION) -> Any:
    """By the kind, along the axes of the mask."""
    gone = [axis for axis in range(x.ndim) if fields["axes_mask"] >> axis & 1]
    kept = [axis for axis in range(x.ndim) if axis not in gone]
    shape = [x.shape[axis] for axis in kept]
    cells = int(np.prod([x.shape[axis] for axis in gone], dtype=np.int64))
    with np.errstate(all="ignore"):
        return table[fields["kind"]](x.transpose(*kept, *gone).reshape(*shape, cells))
