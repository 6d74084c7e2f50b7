"""Generated kernels as torch ops: ``torch.ops.baracuda.<op>``, which importing this module defines."""

from __future__ import annotations

import baracuda.generated

from .functional import rms_norm, scaled_dot_product_attention
from .modules import CausalConv1d, RMSNorm
from .registration import register

__all__ = ["OPS", "CausalConv1d", "RMSNorm", "register", "rms_norm", "scaled_dot_product_attention"]

OPS = register(baracuda.generated, "baracuda")
