"""Liger in Triton: RMSNorm, SwiGLU, and the cross entropy of a linear layer.

The gradient of its SwiGLU takes over the memory of what it is given. Its cross entropy makes gradients beside the loss,
so the two are timed together.
"""

from __future__ import annotations

from typing import Any

from ..case import Case
from . import Body, Maker


def peers() -> dict[str, Maker]:
    """RMSNorm and the cross entropy, forward and backward, and SwiGLU."""
    import torch
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    from ._torch_ops import gradient_of

    def liger(case: Case) -> Body | None:
        eps = case.values.get("eps", 1e-6)

        def rms_norm(tensors: dict[str, Any]) -> dict[str, Any]:
            return {"y": LigerRMSNormFunction.apply(tensors["x"], tensors["gamma"], eps, 0.0, "llama", False)}

        def swiglu(tensors: dict[str, Any]) -> dict[str, Any]:
            return {"y": LigerSiLUMulFunction.apply(tensors["gate"], tensors["up"])}

        def linear_cross_entropy(tensors: dict[str, Any]) -> dict[str, Any]:
            """The loss alone: of tensors without gradients, it makes none."""
            of, x, w, target = case.values, tensors["x"], tensors["w"], tensors["target"].long()
            options = of["ignore_index"], of.get("z_weight", 0.0), of.get("smoothing", 0.0), "none"
            return {"loss": LigerFusedLinearCrossEntropyFunction.apply(x, w, target, None, None, *options)[0]}

        def with_gradients(tensors: dict[str, Any]) -> dict[str, Any]:
            leaves = {name: tensors[name].detach().requires_grad_() for name in ("x", "w")}
            loss = linear_cross_entropy({**tensors, **leaves})["loss"]
            dx, dw = torch.autograd.grad(loss, [*leaves.values()], tensors["dloss"])
            return {"dx": dx, "dw": dw}

        if case.op == "linear_cross_entropy_backward":
            return lambda tensors: lambda: with_gradients(dict(tensors))
        of_loss = {"linear_cross_entropy": linear_cross_entropy}
        forward = {**of_loss, "rms_norm": rms_norm, "swiglu": swiglu}.get(case.op.removesuffix("_backward"))
        if forward is None or case.op == "swiglu_backward":
            return None
        if case.op.endswith("_backward"):
            return gradient_of(case, forward)
        return lambda tensors: lambda: forward(dict(tensors))

    return {"liger": liger}
