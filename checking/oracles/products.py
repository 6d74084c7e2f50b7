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


def _nf4(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Of bytes, each of which has two codes, the first in the high bits."""
    halves, depth = np.asarray(arrays["codes"], np.int64), fields["in_features"]
    codes = np.stack([halves // 16, halves % 16], axis=-1).reshape(len(halves), -1)[:, :depth]
    scale = np.repeat(arrays["absmax"], fields["group_size"], axis=1)[:, :depth]
    return {"y": np.inner(arrays["x"], np.asarray(arrays["table"])[codes] * scale)}


def _grouped(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": _in_groups(fields, arrays["ends"], lambda group, rows: arrays["x"][rows] @ arrays["w"][group].T)}


def _in_groups(fields: Mapping[str, Any], ends: Any, product: Callable[[int, slice], Any]) -> Any:
    """What `product` gives for each group and its rows, which end where the group does; 0 after the last."""
    y, begin = np.zeros((fields["tokens"], fields["out_features"])), 0
    for group, end in enumerate(ends):
        end = max(begin, min(int(end), fields["tokens"]))
        y[begin:end] = product(group, slice(begin, end))
        begin = end
    return y


def _k_grouped(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    y, begin = np.zeros((fields["groups"], fields["rows"], fields["columns"])), 0
    for to, end in zip(y, arrays["ends"], strict=True):
        end = max(begin, min(int(end), fields["tokens"]))
        to += arrays["a"][:, begin:end] @ arrays["b"][begin:end]
        begin = end
    return {"y": y}


def _swiglu(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        gate, up = (_grouped(fields, {**arrays, "w": arrays[name]})["y"] for name in ("w_gate", "w_up"))
        return {"y": UNARY["silu"](gate) * up}


def _masked(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    y = np.zeros((fields["groups"], fields["capacity"], fields["out_features"]))
    for to, x, matrix, count in zip(y, arrays["x"], arrays["w"], arrays["counts"], strict=True):
        to[: max(0, int(count))] = x[: max(0, int(count))] @ matrix.T
    return {"y": y}


def _scaled(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    left, right, of_rows, of_columns = (array.astype(np.float64) for array in list(arrays.values())[:4])
    with np.errstate(all="ignore"):
        return {"y": (left @ right.T) * np.multiply.outer(of_rows, of_columns) + arrays.get("bias", 0.0)}


def _in_blocks(left: Any, right: Any, of_rows: Any, of_blocks: Any) -> Any:
    """Products of 128 of the depth each, with their scales of rows and of 128 columns."""
    y = np.zeros((len(left), len(right)))
    for part in range(of_rows.shape[1]):
        place = slice(128 * part, 128 * (part + 1))
        of_columns = np.repeat(of_blocks[:, part], 128)[: len(right)]
        y += (
            left[:, place].astype(float)
            @ right[:, place].astype(float).T
            * np.multiply.outer(of_rows[:, part], of_columns)
        )
    return y


def _blocks(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": _in_blocks(*(arrays[name] for name in ("a", "b", "scale_a", "scale_b")))}


def _grouped_blocks(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    x, scale_x, w, scale_w, ends = (arrays[name] for name in ("x", "scale_x", "w", "scale_w", "ends"))
    return {"y": _in_groups(fields, ends, lambda of, rows: _in_blocks(x[rows], w[of], scale_x[rows], scale_w[of]))}


def _whole(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": arrays["a"].astype(np.int64) @ arrays["b"].astype(np.int64)}


def _largest(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        y = np.inner(arrays["x"], arrays["w"]) + arrays.get("bias", 0.0)
    axes = {"amax": 1, "amax_of_columns": 0, "amax_of_all": None}
    return {"y": y, **{name: np.abs(y).max(axis=axis, initial=-np.inf) for name, axis in axes.items()}}


def _gated(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        gate, up = (np.inner(arrays["x"], arrays[name]) for name in ("w_gate", "w_up"))
        return {"y": UNARY["silu"](gate) * up}


PRODUCTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "numpy.tensordot": _dense,
    "numpy.matmul": _baddbmm,
    "numpy.inner": _linear,
    "numpy.inner of two": _gated,
    "numpy.inner and its largest": _largest,
    "numpy.inner_int4": _int4,
    "numpy.inner_nf4": _nf4,
    "torch._grouped_mm": _grouped,
    "torch._grouped_mm of matrices": _k_grouped,
    "torch._grouped_mm of two": _swiglu,
    "deep_gemm.m_grouped_gemm_masked": _masked,
    "deep_gemm.fp8_gemm_nt": _blocks,
    "deep_gemm.m_grouped_fp8_gemm_nt_contiguous": _grouped_blocks,
    "numpy.int64": _whole,
    "numpy.multiply.outer": _scaled,
}
