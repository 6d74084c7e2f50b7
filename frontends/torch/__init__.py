"""Generated kernels as torch ops: ``torch.ops.baracuda.<op>``, which importing this module defines."""

from __future__ import annotations

import baracuda.generated

from .registration import register

__all__ = ["OPS", "register"]

OPS = register(baracuda.generated, "baracuda")
