"""Liger: RMSNorm and SwiGLU in Triton; the gradient of its SwiGLU takes over the memory of what it is given."""

from __future__ import annotations

from typing import Any

from ..case import Case
from . import Body, Maker


def peers() -> dict[str, Maker]:
    """RMSNorm, forward and backward, and SwiGLU."""
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    from ._torch_ops import gradient_of

    def liger(case: Case) -> Body | None:
        eps = case.values.get("eps", 1e-6)

        def rms_norm(tensors: dict[str, Any]) -> dict[str, Any]:
            return {"y": LigerRMSNormFunction.apply(tensors["x"], tensors["gamma"], eps, 0.0, "llama", False)}

        def swiglu(tensors: dict[str, Any]) -> dict[str, Any]:
            return {"y": LigerSiLUMulFunction.apply(tensors["gate"], tensors["up"])}

        forward = {"rms_norm": rms_norm, "swiglu": swiglu}.get(case.op.removesuffix("_backward"))
        if forward is None or case.op == "swiglu_backward":
            return None
        if case.op.endswith("_backward"):
            return gradient_of(case, forward)
        return lambda tensors: lambda: forward(dict(tensors))

    return {"liger": liger}
