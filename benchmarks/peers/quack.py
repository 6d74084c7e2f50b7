"""quack in the CuTe DSL: RMSNorm, softmax, cross entropy, and matrix products with their activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..case import Case
from . import Body, Call, Maker, Tensors

_ACTIVATIONS = {"identity": None, "relu": "relu", "gelu": "gelu_tanh_approx", "silu": "silu"}


def peers() -> dict[str, Maker]:
    """What quack has of our ops."""
    bodies = {**_row_ops(), **_losses(), **_products()}

    def quack(case: Case) -> Body | None:
        make = bodies.get(case.op)
        return None if make is None else make(case.values)

    return {"quack": quack}


Bodies = dict[str, Callable[[dict[str, Any]], Body | None]]  # op -> a body for fields of the descriptor


def _row_ops() -> Bodies:
    from quack.rmsnorm import rmsnorm_bwd, rmsnorm_fwd
    from quack.softmax import softmax_bwd, softmax_fwd

    def rms_norm(fields: dict[str, Any]) -> Body:
        return lambda t: lambda: {"y": _first(rmsnorm_fwd(t["x"], t.get("gamma"), eps=fields.get("eps", 1e-6)))}

    def rms_norm_backward(_: dict[str, Any]) -> Body:
        def backward(t: Tensors) -> Call:
            rstd = t["rms"].float().reciprocal().flatten()
            return lambda: _named(rmsnorm_bwd(t["x"], t.get("gamma"), t["dy"], rstd))

        return backward

    return {
        "rms_norm": rms_norm,
        "rms_norm_backward": rms_norm_backward,
        "softmax": lambda _: lambda t: lambda: {"y": softmax_fwd(t["x"])},
        "softmax_backward": lambda _: lambda t: lambda: {"dx": softmax_bwd(t["dy"], t["y"])},
    }


def _losses() -> Bodies:
    """Without smoothing and penalty, which it has not, and without slopes where the gradient comes with the loss."""
    from quack.cross_entropy import cross_entropy_bwd, cross_entropy_fwd

    def of(body: Callable[[Any, Any, int, Tensors], dict[str, Any]], fields: dict[str, Any]) -> Body | None:
        ignored = fields.get("ignore_index", -100)
        if fields.get("smoothing") or fields.get("z_weight"):
            return None

        def prepared(t: Tensors) -> Call:
            logits, target = t["logits"], t["target"]
            counts = (target >= 0) & (target < logits.shape[-1])
            target = target.where(counts, target.new_full((), ignored)).flatten().long()
            return lambda: body(logits, target, ignored, t)

        return prepared

    def loss(logits: Any, target: Any, ignored: int, _: Tensors) -> dict[str, Any]:
        loss, lse = cross_entropy_fwd(logits, target, ignore_index=ignored, return_lse=True)
        return {"loss": loss[:, None], "lse": lse[:, None]}

    def gradient(logits: Any, target: Any, ignored: int, t: Tensors) -> dict[str, Any]:
        slopes, lse = t["dloss"].flatten(), t["lse"].flatten()
        return {"dlogits": cross_entropy_bwd(logits, target, slopes, lse, ignore_index=ignored)}

    def both(logits: Any, target: Any, ignored: int, _: Tensors) -> dict[str, Any]:
        loss, lse, dlogits = cross_entropy_fwd(logits, target, ignore_index=ignored, return_lse=True, return_dx=True)
        return {"loss": loss[:, None], "lse": lse[:, None], "dlogits": dlogits}

    return {
        "cross_entropy": lambda fields: of(loss, fields),
        "cross_entropy_backward": lambda fields: of(gradient, fields),
        "cross_entropy_with_gradient": lambda fields: None if fields["has_dloss"] else of(both, fields),
    }


def _products() -> Bodies:
    """Of the kernels that its own tuning chooses, before the clock starts."""
    import torch
    from quack.gemm_interface import gemm, gemm_act, gemm_gated

    def linear(fields: dict[str, Any]) -> Body | None:
        kind = fields["kind"]
        if kind not in _ACTIVATIONS:
            return None

        def prepared(t: Tensors) -> Call:
            x, w, bias = t["x"], t["w"].mT, t.get("bias")
            if kind == "identity":
                return lambda: {"y": gemm(x, w, bias=bias)}
            act = {"bias": bias, "activation": _ACTIVATIONS[kind], "store_preact": False}
            return lambda: {"y": gemm_act(x, w, **act)[1]}

        return prepared

    def gated(t: Tensors) -> Call:
        pairs = torch.stack((t["w_gate"], t["w_up"]), 1).flatten(0, 1)  # its rows take turns
        return lambda: {"y": gemm_gated(t["x"], pairs.mT, activation="swiglu", store_preact=False)[1]}

    return {
        "dense_gemm": lambda fields: lambda t: lambda: {"y": gemm(t["a"], t["b"])},
        "linear": linear,
        "linear_swiglu": lambda _: gated,
    }


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output


def _named(outputs: Any) -> dict[str, Any]:
    return {name: tensor for name, tensor in zip(("dx", "dgamma"), outputs, strict=False) if tensor is not None}
