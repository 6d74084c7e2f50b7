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


def _int4(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Of bytes, each of which has two codes."""
    words, depth = np.asarray(arrays["codes"], np.int64).astype("<u4"), fields["in_features"]
    pairs = words.view(np.uint8).reshape(len(words), -1)
    codes = np.stack([pairs % 16, pairs // 16], axis=-1).reshape(len(words), -1)[:, :depth].astype(float)
    scale, zero = (np.repeat(arrays[n], fields["group_size"], axis=1)[:, :depth] for n in ("scale", "zero"))
    return {"y": np.inner(arrays["x"], scale * codes - scale * zero)}


PRODUCTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "numpy.tensordot": _dense,
    "numpy.matmul": _baddbmm,
    "numpy.inner": _linear,
    "numpy.inner_int4": _int4,
}
