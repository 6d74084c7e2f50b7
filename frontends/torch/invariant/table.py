"""Which of aten's ops are replaced, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda.runtime as rt

from . import composites, products, rows

Compute = Callable[..., Any]


def _into(compute: Compute) -> Compute:
    """The variant that takes `out`."""

    def call(*arguments: Any, out: Any, **keywords: Any) -> Any:
        result = compute(*arguments, **keywords)
        if out.dtype != result.dtype:
            raise rt.InvalidProblem(f"out is of {out.dtype}, the result of {result.dtype}")
        if out.shape != result.shape:
            out.resize_(result.shape)
        return out.copy_(result)

    return call


def _reduced_into(compute: Compute) -> Compute:
    """The variant that takes `out`, whose type sums have if no other is given."""

    def call(x: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None, out: Any) -> Any:
        return _into(compute)(x, dim, keepdim, dtype=out.dtype if dtype is None else dtype, out=out)

    return call


def _in_place(compute: Compute) -> Compute:
    """The variant that writes to its first argument."""

    def call(first: Any, *arguments: Any, **keywords: Any) -> Any:
        result = compute(first, *arguments, **keywords)
        if first.shape != result.shape:
            raise rt.InvalidProblem(f"the result has shape {tuple(result.shape)}, what it is written to another")
        return first.copy_(result)

    return call


_PRODUCTS: dict[str, Compute] = {name: getattr(products, name) for name in ("mm", "bmm", "addmm", "baddbmm", "addmv")}
_VECTORS: dict[str, Compute] = {"mv": products.mv, "dot": products.dot, "vdot": products.dot}
_ROWS: dict[str, Compute] = {
    "_softmax": rows.softmax,
    "_log_softmax": rows.log_softmax,
    "_softmax_backward_data": rows.softmax_backward,
    "_log_softmax_backward_data": rows.log_softmax_backward,
    "linalg_vector_norm": rows.vector_norm,
}
# By their names among aten's.
KERNELS: dict[str, Compute] = {
    **_PRODUCTS,
    **{f"{name}.out": _into(compute) for name, compute in {**_PRODUCTS, **_VECTORS}.items()},
    **{f"{name}_": _in_place(_PRODUCTS[name]) for name in ("addmm", "baddbmm", "addmv")},
    **_VECTORS,
    "_grouped_mm": products.grouped_mm,
    "_scaled_mm": products.scaled_mm,
    "_scaled_mm.out": _into(products.scaled_mm),
    "_scaled_mm_v2": products.scaled_mm_v2,
    "_scaled_mm_v2.out": _into(products.scaled_mm_v2),
    **_ROWS,
    "_softmax.out": _into(rows.softmax),
    "_log_softmax.out": _into(rows.log_softmax),
    "linalg_vector_norm.out": _into(rows.vector_norm),
    "native_layer_norm": rows.layer_norm,
    "native_layer_norm_backward": rows.layer_norm_backward,
    "_fused_rms_norm": rows.rms_norm,
    "_fused_rms_norm_backward": rows.rms_norm_backward,
    "sum.dim_IntList": rows.total,
    "sum.IntList_out": _reduced_into(rows.total),
    "mean.dim": rows.average,
    "mean.out": _reduced_into(rows.average),
    "var.correction": rows.variance,
    "std.correction": rows.deviation,
    "var_mean.correction": rows.variance_and_mean,
    "std_mean.correction": rows.deviation_and_mean,
}
# Composed of other ops, below autograd and where it records.
COMPOSED: dict[str, Compute] = {
    "linear": composites.linear,
    "rms_norm": composites.rms_norm,
    "scaled_dot_product_attention": composites.attention,
}
# Torch's kernels for floats may add up in another order in another batch, and there are none here.
REFUSED = (
    *(f"{name}.dtype{out}" for name in ("mm", "bmm", "addmm", "baddbmm") for out in ("", "_out")),
    "_addmm_activation",
    "_addmm_activation.out",
    "_cdist_forward",
    "_cudnn_attention_forward",
    "_cudnn_rnn",
    "_efficient_attention_forward",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_flash_attention_forward",
    "_masked_softmax",
    "_native_multi_head_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_grouped_mm",
    "_scaled_grouped_mm_v2",
    "_transformer_encoder_layer_fwd",
    "_weight_int4pack_mm",
    "_weight_int8pack_mm",
    "addbmm",
    "addbmm.out",
    "convolution",
    "cumprod",
    "cumprod.out",
    "cumsum",
    "cumsum.out",
    "logcumsumexp",
    "mkldnn_rnn_layer",
    "nansum",
    "nansum.out",
    "native_group_norm",
    "norm.ScalarOpt_dim",
    "norm.ScalarOpt_dim_dtype",
    "prod.dim_int",
    "prod.int_out",
)
