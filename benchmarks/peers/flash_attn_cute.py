"""FlashAttention in the CuTe DSL; its tensors have the heads behind the sequence, in memory of their own."""

from __future__ import annotations

from typing import Any

from ..case import Case
from . import Body, Call, Maker, Tensors


def peers() -> dict[str, Maker]:
    """Attention, forward and backward."""
    import torch
    from flash_attn.cute import flash_attn_func

    def cute(case: Case) -> Body | None:
        fields = case.values
        if case.op not in ("flash_sdpa", "flash_sdpa_backward"):
            return None
        how = {"causal": fields["is_causal"], "softmax_scale": fields["scale"]}

        def forward(tensors: Tensors) -> Call:
            q, k, v = (_swapped(tensors[name]) for name in "qkv")
            return lambda: {"y": _first(flash_attn_func(q, k, v, **how)).transpose(1, 2)}

        def backward(tensors: Tensors) -> Call:
            leaves = [_swapped(tensors[name]).requires_grad_() for name in "qkv"]
            y, dy = _first(flash_attn_func(*leaves, **how)), _swapped(tensors["dy"])

            def call() -> dict[str, Any]:
                found = torch.autograd.grad(y, leaves, dy, retain_graph=True)
                return {name: slope.transpose(1, 2) for name, slope in zip(("dq", "dk", "dv"), found, strict=True)}

            return call

        return forward if case.op == "flash_sdpa" else backward

    return {"fa-cute": cute}


def _swapped(tensor: Any) -> Any:
    return tensor.detach().transpose(1, 2).contiguous()


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple | list) else found
