"""Reductions of rows by the numbers of their segments, by NumPy: second opinions of the ops that are so called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_FOLDS: Mapping[str, tuple[Any, float]] = {
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
    "prod": (np.multiply, 1.0),
}


def _folded(fields: Mapping[str, Any], arrays: Mapping[str, Any], how: Any, start: float) -> Any:
    ids, rows = np.asarray(arrays["ids"]).reshape(-1), arrays["x"].reshape(-1, fields["width"])
    y = np.full((fields["segments"], fields["width"]), start, rows.dtype)
    inside = (ids >= 0) & (ids < fields["segments"])
    with np.errstate(all="ignore"):
        how.at(y, ids[inside].astype(np.int64), rows[inside])
    return y


def _sum(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": _folded(fields, arrays, np.add, 0.0)}


def _fold(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": _folded(fields, arrays, *_FOLDS[fields["kind"]])}


def _mean(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    ids = np.asarray(arrays["ids"]).reshape(-1)
    inside = ids[(ids >= 0) & (ids < fields["segments"])].astype(np.int64)
    count = np.bincount(inside, minlength=fields["segments"])
    total = _folded(fields, arrays, np.add, 0.0)
    return {"y": total / np.maximum(count, 1)[:, None], "count": 1.0 * count}


SEGMENTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "numpy.add.at": _sum,
    "numpy.ufunc.at": _fold,
    "numpy.bincount": _mean,
}
