"""FlashAttention in the CuTe DSL; its tensors have the heads behind the sequence, in memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..case import Case
from . import Body, Call, Maker, Tensors


def peers() -> dict[str, Maker]:
    """Attention, forward and backward, and backward with sums in a fixed order."""
    from flash_attn.cute import flash_attn_func

    backward = ("flash_sdpa_backward",)
    return {
        "fa-cute": partial(_cute, flash_attn_func, ("flash_sdpa", *backward)),
        "fa-cute-deterministic": partial(_cute, partial(flash_attn_func, deterministic=True), backward),
    }


def _cute(attention: Callable[..., Any], ops: tuple[str, ...], case: Case) -> Body | None:
    if case.op not in ops:
        return None
    options = {"causal": case.values["is_causal"], "softmax_scale": case.values["scale"]}

    def forward(tensors: Tensors) -> Call:
        q, k, v = (_swapped(tensors[name]) for name in "qkv")
        return lambda: {"y": _first(attention(q, k, v, **options)).transpose(1, 2)}

    def backward(tensors: Tensors) -> Call:
        import torch

        leaves = [_swapped(tensors[name]).requires_grad_() for name in "qkv"]
        y, dy = _first(attention(*leaves, **options)), _swapped(tensors["dy"])

        def call() -> dict[str, Any]:
            grads = torch.autograd.grad(y, leaves, dy, retain_graph=True)
            return {name: slope.transpose(1, 2) for name, slope in zip(("dq", "dk", "dv"), grads, strict=True)}

        return call

    return forward if case.op == "flash_sdpa" else backward


def _swapped(tensor: Any) -> Any:
    return tensor.detach().transpose(1, 2).contiguous()


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output
