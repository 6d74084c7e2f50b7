"""torch's version of each forward op, with which plans are compared.

A function takes torch, the descriptor's fields and the tensors that are present, in the caller's shapes and, if real,
in float64. It returns every output. A new op gets a function here, in `FORWARD`.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from baracuda.runtime import Unsupported

from . import torch_experts, torch_kinds, torch_random
from .torch_norms import (
    batch_norm,
    cross_entropy,
    cross_entropy_with_gradient,
    group_norm,
    layer_norm,
    linear_cross_entropy,
    log_softmax,
    rms_norm,
    softmax,
    var_mean,
)
from .torch_optimizers import adamw, adamw_master, clip_norm, ema, lion, sgd
from .torch_products import (
    baddbmm,
    block_scaled_mm,
    fp8_quantize,
    int4_linear,
    int8_quantize,
    linear_amax,
    linear_swiglu,
    nf4_linear,
    scaled_mm,
)
from .torch_sequences import alibi, causal_conv1d, causal_conv1d_update, flash_sdpa, rope, sdpa
from .torch_tensors import Fields, Tensors, Values


def torch_module() -> Any:
    """torch, which nothing else here imports."""
    try:
        return import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Unsupported("torch is not installed; get it with 'pip install torch'") from None


def _repeat(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": tensors["x"].repeat(*fields["repeats"])}


def _swiglu(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.nn.functional.silu(tensors["gate"]) * tensors["up"]}


def _geglu(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    gate = tensors["gate"]
    return {"y": gate * (0.5 * torch.special.erfc(-gate * math.sqrt(0.5))) * tensors["up"]}


def _pad(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    widths = [fields[name] for name in ("left", "right", "top", "bottom")]
    return {"y": torch.nn.functional.pad(tensors["x"], widths, value=fields["value"])}


def _pad_reflected(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    """By indices: torch refuses arrays without elements."""

    def places(size: int, before: int, after: int) -> Any:
        return (size - 1) - ((size - 1) - torch.arange(-before, size + after).abs()).abs()

    height, width = tensors["x"].shape[-2:]
    rows = places(height, fields["top"], fields["bottom"])
    return {"y": tensors["x"][..., rows, :][..., places(width, fields["left"], fields["right"])]}


def _concat(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.cat((tensors["a"], tensors["b"]), 1)}


def _reduce_rows(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x = tensors["x"]
    axes = [axis for axis in range(x.dim()) if fields["axes_mask"] >> axis & 1]
    return {"total": x.sum(axes, keepdim=True), "average": x.mean(axes, keepdim=True)}


def _embedding(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    ids, table = tensors["ids"].long(), tensors["table"]
    inside = (ids >= 0) & (ids < fields["vocab_size"])
    padded = torch.nn.functional.pad(table, (0, 0, 0, 1))
    return {"y": torch.nn.functional.embedding(torch.where(inside, ids, fields["vocab_size"]), padded)}


def _segments(torch: Any, fields: Fields, tensors: Tensors, how: str, start: float) -> Any:
    """Of rows by the numbers of their segments; others go to one more."""
    ids, x, count = tensors["ids"].long().flatten(), tensors["x"], fields["segments"]
    rows = torch.full((count + 1, fields["width"]), start, dtype=x.dtype)
    where = torch.where((ids >= 0) & (ids < count), ids, count)[:, None].expand(-1, fields["width"])
    return rows.scatter_reduce(0, where, x.reshape(len(ids), fields["width"]), how)[:count]


def _segment_sum(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": _segments(torch, fields, tensors, "sum", 0.0)}


def _segment_mean(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    ones = {"ids": tensors["ids"], "x": tensors["x"].new_ones((*tensors["x"].shape[:-1], 1))}
    count = _segments(torch, {**fields, "width": 1}, ones, "sum", 0.0)
    return {"y": _segments(torch, fields, tensors, "sum", 0.0) / count.clamp(min=1), "count": count[:, 0]}


def _segment_fold(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    how, start = {"max": ("amax", -math.inf), "min": ("amin", math.inf), "prod": ("prod", 1.0)}[fields["kind"]]
    return {"y": _segments(torch, fields, tensors, how, start)}


def _avg_pool2d(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    windows = torch.nn.functional.pad(tensors["x"], (fields["pad"],) * 4)
    for axis in (2, 3):
        windows = windows.unfold(axis, fields["kernel"], fields["stride"])
    return {"y": windows.mean((-2, -1))}


def _max_pool2d(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    sizes = [fields[name] for name in ("kernel", "stride", "pad", "dilation")]
    y, indices = torch.nn.functional.max_pool2d(tensors["x"], *sizes, return_indices=True)
    return {"y": y, "indices": indices}


FORWARD: dict[str, Values] = {
    "adamw": adamw,
    "adamw_master": adamw_master,
    "lion": lion,
    "sgd": sgd,
    "ema": ema,
    "clip_norm": clip_norm,
    **torch_kinds.FORWARD,
    **torch_experts.FORWARD,
    "swiglu": _swiglu,
    "geglu": _geglu,
    "dropout": torch_random.dropout,
    "random_values": torch_random.random_values,
    "pad2d": _pad,
    "reflect_pad2d": _pad_reflected,
    "concatenate": _concat,
    "dense_gemm": lambda torch, fields, tensors: {"y": tensors["a"] @ tensors["b"]},
    "baddbmm": baddbmm,
    "linear_amax": linear_amax,
    "linear_swiglu": linear_swiglu,
    "int4_linear": int4_linear,
    "nf4_linear": nf4_linear,
    "linear_cross_entropy": linear_cross_entropy,
    "scaled_mm": scaled_mm,
    "block_scaled_mm": block_scaled_mm,
    "int_mm": lambda torch, fields, tensors: {"y": tensors["a"].int() @ tensors["b"].int()},
    "quantized_linear": scaled_mm,
    "reduce_rows": _reduce_rows,
    "embedding": _embedding,
    "segment_sum": _segment_sum,
    "segment_mean": _segment_mean,
    "segment_fold": _segment_fold,
    "rope": rope,
    "avg_pool2d": _avg_pool2d,
    "max_pool2d": _max_pool2d,
    "cross_entropy": cross_entropy,
    "cross_entropy_with_gradient": cross_entropy_with_gradient,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "batch_norm": batch_norm,
    "var_mean": var_mean,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "repeat": _repeat,
    "alibi": alibi,
    "sdpa": sdpa,
    "flash_sdpa": flash_sdpa,
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_update": causal_conv1d_update,
    "fp8_quantize": fp8_quantize,
    "int8_quantize": int8_quantize,
}
