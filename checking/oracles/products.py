"""Matrix products by NumPy, one matrix at a time: second opinions of the matmul family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .elementwise import UNARY


def _dense(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    y = np.zeros((fields["batch_size"], fields["m"], fields["n"]))
    for to, a, b in zip(y, arrays["a"], arrays["b"], strict=True):
        to += np.tensordot(a, b, 1)
    return {"y": y}


def _baddbmm(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        return {"y": fields["beta"] * arrays["c"] + fields["alpha"] * np.matmul(arrays["a"], arrays["b"])}


def _linear(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        return {"y": UNARY[fields["kind"]](np.inner(arrays["x"], arrays["w"]) + arrays.get("bias", 0.0))}


def _scaled(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    left, right, of_rows, of_columns = (array.astype(np.float64) for array in list(arrays.values())[:4])
    with np.errstate(all="ignore"):
        return {"y": (left @ right.T) * np.multiply.outer(of_rows, of_columns) + arrays.get("bias", 0.0)}


def _whole(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": arrays["a"].astype(np.int64) @ arrays["b"].astype(np.int64)}


PRODUCTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "numpy.tensordot": _dense,
    "numpy.matmul": _baddbmm,
    "numpy.inner": _linear,
    "numpy.int64": _whole,
    "numpy.multiply.outer": _scaled,
}
