"""Liger: RMSNorm in Triton."""

from __future__ import annotations

from typing import Any

from ..case import Case
from . import Body, Maker


def peers() -> dict[str, Maker]:
    """RMSNorm, forward and backward."""
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    from ._torch_ops import gradient_of

    def liger(case: Case) -> Body | None:
        eps = case.values.get("eps", 1e-6)

        def forward(tensors: dict[str, Any]) -> dict[str, Any]:
            return {"y": LigerRMSNormFunction.apply(tensors["x"], tensors["gamma"], eps, 0.0, "llama", False)}

        if case.op == "rms_norm":
            return lambda tensors: lambda: forward(dict(tensors))
        return gradient_of(case, forward) if case.op == "rms_norm_backward" else None

    return {"liger": liger}
