"""A mixture of experts: the gate, the permutation of rows, two layers of each expert, and the sum, on one workspace."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import baracuda.runtime as rt
from baracuda.runtime.arrays.tensor import by_ancestry
from baracuda.runtime.arrays.workspace import rounded

from .memory import allocator


def moe(
    x: Any,
    logits: Any,
    w_gate: Any,
    w_up: Any,
    w_down: Any,
    *,
    top_k: int,
    renormalize: bool = True,
    stream: Any = None,
) -> Any:
    """The sum of the results of each row's `top_k` experts, weighted by the softmax of its logits.

    An expert `e` is `(silu(x @ w_gate[e].T) * (x @ w_up[e].T)) @ w_down[e].T`. Shapes: x [tokens, width], logits
    [tokens, experts], w_gate and w_up [experts, hidden, width], w_down [experts, width, hidden]; all of one element
    type. Of equal logits the first expert is chosen; `renormalize` makes the weights of a row add up to 1. How many
    rows an expert has stays on the device, so the call can be captured in a graph. Repeated calls give the same bits.
    Records no gradients; `baracuda.frontends.torch.moe` does.
    """
    import baracuda.generated as of

    arrays = {"x": x, "logits": logits, "w_gate": w_gate, "w_up": w_up, "w_down": w_down}
    views = {name: of.GroupedSwigluPlan.viewed(array, name) for name, array in arrays.items()}
    _check(arrays, views)
    (tokens, width), (_, experts), (_, hidden, _) = (views[n].shape for n in ("x", "logits", "w_gate"))
    element, device = views["x"].element, views["x"].device
    slots = {"tokens": tokens * top_k, "groups": experts}
    descriptors = {
        "gate": of.TopkSoftmaxDescriptor(
            tokens=tokens, experts=experts, top_k=top_k, renormalize=renormalize, element=element
        ),
        "permute": of.MoePermuteDescriptor(tokens=tokens, width=width, experts=experts, top_k=top_k, element=element),
        "up": of.GroupedSwigluDescriptor(**slots, in_features=width, out_features=hidden, element=element),
        "down": of.GroupedMmDescriptor(**slots, in_features=hidden, out_features=width, element=element),
        "combine": of.MoeCombineDescriptor(
            tokens=tokens, top_k=top_k, permuted=tokens * top_k, width=width, element=element
        ),
    }
    layers: tuple[Any, ...] = (of.GroupedSwigluPlan, of.GroupedMmPlan)
    classes = (of.TopkSoftmaxPlan, of.MoePermutePlan, *layers, of.MoeCombinePlan)
    plans: dict[str, Any] = {
        name: plan.select(descriptor, device=device)
        for plan, (name, descriptor) in zip(classes, descriptors.items(), strict=True)
    }
    # What one step leaves for the next. Results of the last layer take the place of the sorted rows.
    chosen, kind = (tokens, top_k), rt.ElementKind
    left = {
        "weights": (chosen, element.row.acc),
        "ids": (chosen, kind.I32),
        "places": (chosen, kind.I32),
        "ends": ((experts,), kind.I32),
        "rows": ((tokens * top_k, width), element),
        "hidden": ((tokens * top_k, hidden), element),
    }
    allocate, scratch = allocator(x, device), max(plan.workspace_bytes for plan in plans.values())
    held = sum(rounded(math.prod(shape) * of_kind.row.bytes) for shape, of_kind in left.values())
    memory, known, begin = allocate((held + scratch,), kind.U8), {}, scratch
    for name, (shape, of_kind) in left.items():
        end = begin + math.prod(shape) * of_kind.row.bytes
        known[name] = memory[begin:end].view(allocate((0,), of_kind).dtype).reshape(shape)
        begin += rounded(end - begin)
    weights, ids, places, ends = (known[name] for name in ("weights", "ids", "places", "ends"))
    rows, inner, y = known["rows"], known["hidden"], allocate((tokens, width), element)
    shared = {"workspace": memory[:scratch] if scratch else None, "stream": stream}
    plans["gate"].run(logits=logits, weights=weights, ids=ids, **shared)
    plans["permute"].run(x=x, ids=ids, rows=rows, places=places, ends=ends, **shared)
    plans["up"].run(x=rows, w_gate=w_gate, w_up=w_up, ends=ends, y=inner, **shared)
    plans["down"].run(x=inner, w=w_down, ends=ends, y=rows, **shared)
    plans["combine"].run(rows=rows, places=places, weights=weights, y=y, **shared)
    return y


def _check(arrays: Mapping[str, Any], views: Mapping[str, rt.TensorView]) -> None:
    """Shapes that plans do not compare with one another, and what cannot be recorded."""
    ranks = {"x": 2, "logits": 2, "w_gate": 3, "w_up": 3, "w_down": 3}
    for name, rank in ranks.items():
        if len(views[name].shape) != rank:
            raise rt.InvalidProblem(f"moe: {name!r} must have {rank} axes, got shape {views[name].shape}")
    (tokens, width), (experts, hidden, _) = views["x"].shape, views["w_gate"].shape
    wanted = {
        "logits": (tokens, experts),
        "w_gate": (experts, hidden, width),
        "w_up": (experts, hidden, width),
        "w_down": (experts, width, hidden),
    }
    for name, shape in wanted.items():
        if views[name].shape != shape:
            raise rt.InvalidProblem(f"moe: {name!r} must have the shape {shape}, got {views[name].shape}")
    torch = sys.modules.get("torch")
    if torch is not None and torch.is_grad_enabled():
        for name, array in arrays.items():
            if by_ancestry(type(array), {"torch.Tensor": True}) and array.requires_grad:
                message = f"moe: {name!r} requires a gradient, which moe does not record"
                raise rt.Unsupported(f"{message}; use torch.no_grad(), or moe of baracuda.frontends.torch")
