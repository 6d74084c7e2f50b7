"""Generated kernels as torch ops: ``torch.ops.baracuda.<op>``, which importing this module defines."""

from __future__ import annotations

import baracuda.generated

from .. import require

require("torch")

from .functional import grouped_mm, moe, rms_norm, scaled_dot_product_attention  # noqa: E402
from .invariant import are_batch_invariant_ops_enabled, batch_invariant, use_batch_invariant_ops  # noqa: E402
from .modules import CausalConv1d, RMSNorm  # noqa: E402
from .op import use_tf32  # noqa: E402
from .registration import register  # noqa: E402

__all__ = [
    "OPS",
    "CausalConv1d",
    "RMSNorm",
    "are_batch_invariant_ops_enabled",
    "batch_invariant",
    "grouped_mm",
    "moe",
    "register",
    "rms_norm",
    "scaled_dot_product_attention",
    "use_batch_invariant_ops",
    "use_tf32",
]

OPS = register(baracuda.generated, "baracuda")
