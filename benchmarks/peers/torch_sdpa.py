"""torch's scaled_dot_product_attention by each of its backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..case import Case
from . import Body, Maker


def peers() -> dict[str, Maker]:
    """Attention, forward and backward, by FlashAttention-2, cuDNN, the memory-efficient kernels and plain products."""
    from torch.nn.attention import SDPBackend

    return {
        "flash2": _by(SDPBackend.FLASH_ATTENTION),
        "cudnn": _by(SDPBackend.CUDNN_ATTENTION),
        "efficient": _by(SDPBackend.EFFICIENT_ATTENTION),
        "math": _by(SDPBackend.MATH, most_scores=1 << 28),
    }


def _by(backend: Any, most_scores: int | None = None) -> Maker:
    """`most_scores` is how many may be materialised: with more it is never the best, and memory runs out."""

    def maker(case: Case) -> Body | None:
        fields = case.values
        if case.op not in ("flash_sdpa", "flash_sdpa_backward"):
            return None
        scores = fields["batch_size"] * fields["num_heads"] * fields["query_len"] * fields["key_len"]
        if most_scores is not None and scores > most_scores:
            return None
        return _body(case, _forward(fields, backend))

    return maker


def _forward(fields: dict[str, Any], backend: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    import torch.nn.functional as F
    from torch.nn.attention import sdpa_kernel

    options = {"is_causal": fields["is_causal"], "scale": fields["scale"]}
    if fields["num_kv_heads"] != fields["num_heads"]:
        options["enable_gqa"] = True

    def forward(t: dict[str, Any]) -> dict[str, Any]:
        with sdpa_kernel(backend):
            return {"y": F.scaled_dot_product_attention(t["q"], t["k"], t["v"], **options)}

    return forward


def _body(case: Case, forward: Callable[[dict[str, Any]], dict[str, Any]]) -> Body:
    if case.spec.gradient is None:
        return lambda tensors: lambda: forward(dict(tensors))
    from ._torch_ops import gradient_of

    return gradient_of(case, forward)
