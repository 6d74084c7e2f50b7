"""torch's attention, positions and convolutions of sequences (see `torch_values`)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

from .torch_tensors import Fields, Tensors


def alibi(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    scores, slopes = tensors["scores"], tensors["slopes"]
    queries, keys = (torch.arange(n, dtype=scores.dtype, device=scores.device) for n in scores.shape[2:])
    return {"y": scores + slopes[:, None, None] * (keys - queries[:, None])}


def sdpa(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    scores, dead = _scores(torch, fields, tensors)
    attn = torch.where(dead, 0.0, torch.softmax(scores, -1))
    return {"attn": attn, "y": _attended(torch, fields, tensors, scores, dead)}


def flash_sdpa(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    scores, dead = _scores(torch, fields, tensors)
    lse = torch.where(dead, -torch.inf, torch.logsumexp(scores, -1, keepdim=True))[..., 0]
    return {"y": _attended(torch, fields, tensors, scores, dead), "lse": lse}


def _attended(torch: Any, fields: Fields, tensors: Tensors, scores: Any, dead: Any) -> Any:
    """The weighted values, by torch's own attention where it supports the fields."""
    q, k, v = (tensors["q"], *(_shared(fields, tensors[name]) for name in ("k", "v")))
    if fields.get("softcap", 0.0) or not (scores.numel() and q.numel() and v.numel()):
        return torch.where(dead, 0.0, torch.softmax(scores, -1)) @ v
    attention = import_module("torch.nn.attention")
    mask = torch.where(dead, 0.0, _added(torch, fields, tensors)).expand(scores.shape)
    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=fields["scale"])
    return torch.where(dead, 0.0, y)


def _scores(torch: Any, fields: Fields, tensors: Tensors) -> tuple[Any, Any]:
    """The softmax's input, and which queries see no key: their scores are 0, so that gradients are finite."""
    scores = fields["scale"] * (tensors["q"] @ _shared(fields, tensors["k"]).transpose(-1, -2))
    if softcap := fields.get("softcap", 0.0):
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores + _added(torch, fields, tensors)
    dead = (scores == -torch.inf).all(-1, keepdim=True)
    return torch.where(dead, 0.0, scores), dead


def _added(torch: Any, fields: Fields, tensors: Tensors) -> Any:
    """What is added to scores: -inf for keys that a query does not see."""
    q, queries, keys = tensors["q"], fields["query_len"], fields["key_len"]
    shift = keys - queries if fields.get("bottom_right") else 0
    at = torch.arange(queries, device=q.device)[:, None] + shift
    ahead = torch.arange(keys, device=q.device) - at
    left = fields.get("window_left", -1)
    right = 0 if fields.get("is_causal") else fields.get("window_right", -1)
    hidden = (ahead < -left) & (left >= 0) | (ahead > right) & (right >= 0)
    added = torch.zeros(ahead.shape, dtype=q.dtype, device=q.device).masked_fill(hidden, -torch.inf)
    if (slopes := tensors.get("alibi_slopes")) is not None:
        added = added - slopes[:, :, None, None] * ahead.abs()
    return added if (mask := tensors.get("mask")) is None else added + mask


def _shared(fields: Fields, tensor: Any) -> Any:
    """The keys or values of each query head."""
    return tensor.repeat_interleave(fields["num_heads"] // max(1, fields["num_kv_heads"]), dim=1)


def causal_conv1d(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, halo = tensors["x"], fields["width"] - 1
    parts, states = [], [x.new_zeros(0, x.shape[1], halo)]
    for before, part in _sequences(fields, tensors):
        extended = torch.cat([before, part], 2)
        parts.append(_filtered(torch, fields, tensors, extended))
        states.append(extended[:, :, part.shape[2] :])
    y = torch.cat(parts, 2) if parts else torch.zeros_like(x)  # what is in no sequence comes to nothing
    return {"y": y, "final_states": torch.cat(states)}


def _sequences(fields: Fields, tensors: Tensors) -> Iterator[tuple[Any, Any]]:
    """Initial states and x, of all sequences at once or one by one."""
    x, states, halo = tensors["x"], tensors.get("initial_states"), fields["width"] - 1
    if states is None:
        states = x.new_zeros(fields["num_sequences"], x.shape[1], halo)
    if (ends := tensors.get("cu_seqlens")) is None:
        yield states, x
        return
    for turn, (first, end) in enumerate(pairwise(ends.tolist())):
        yield states[turn : turn + 1], x[:, :, first:end]


def causal_conv1d_update(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, state, halo = tensors["x"], tensors["conv_state"], fields["width"] - 1
    extended = torch.cat([state, x], 2)
    y = _filtered(torch, fields, tensors, extended[:, :, state.shape[2] - halo :])
    return {"y": y, "new_state": extended[:, :, x.shape[2] :]}


def _filtered(torch: Any, fields: Fields, tensors: Tensors, extended: Any) -> Any:
    steps = extended.shape[2] - fields["width"] + 1
    if not extended[:, :, :steps].numel():
        return extended[:, :, :steps]
    conv1d, channels = torch.nn.functional.conv1d, extended.shape[1]
    pre = conv1d(extended, tensors["weight"][:, None], tensors.get("bias"), groups=channels)
    return torch.nn.functional.silu(pre) if fields["use_silu"] else pre


def rope(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x = tensors["x"]
    pairs = x.unflatten(-1, (-1, 2) if fields["kind"] == "neighbours" else (2, fields["head_dim"] // 2))
    first, second = pairs.unbind(-1 if fields["kind"] == "neighbours" else -2)
    other = torch.stack((-second, first), -1 if fields["kind"] == "neighbours" else -2).flatten(-2)
    return {"y": x * tensors["cosines"][:, None] + other * tensors["sines"][:, None]}
