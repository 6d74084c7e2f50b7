"""torch's version of each forward op, with which plans are compared.

A function takes torch, the descriptor's fields and the tensors that are present, in the caller's shapes and, if real,
in float64. It returns every output. A new op gets a function here, in `FORWARD`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from typing import Any

from baracuda.runtime import Unsupported

from . import torch_experts, torch_kinds, torch_random

Fields = Mapping[str, Any]
Tensors = Mapping[str, Any]
Values = Callable[[Any, Fields, Tensors], dict[str, Any]]


def torch_module() -> Any:
    """torch, which nothing else here imports."""
    try:
        return import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Unsupported("torch is not installed; get it with 'pip install torch'") from None


# ------------------------------------------------------------------------------------------------------ normalization


def _rms_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, over = tensors["x"], _normalized(fields)
    rms = torch.sqrt((x * x).mean(_last(over), keepdim=True) + fields["eps"])
    gamma = _shaped(tensors.get("gamma"), over)
    y = torch.nn.functional.rms_norm(x, over, gamma, fields["eps"]) if x.numel() else x
    return {"y": y, "rms": rms}


def _layer_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, over, eps = tensors["x"], _normalized(fields), fields["eps"]
    mu = x.mean(_last(over), keepdim=True)
    centred = x - mu.detach()  # changes nothing but torch's roundoff, which grows with the mean
    rstd = torch.rsqrt((centred * centred).mean(_last(over), keepdim=True) + eps)
    gamma, beta = (_shaped(tensors.get(name), over) for name in ("gamma", "beta"))
    y = torch.nn.functional.layer_norm(centred, over, gamma, beta, eps) if x.numel() else x
    return {"y": y, "mu": mu, "rstd": rstd}


def _group_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, eps = tensors["x"], fields["eps"]
    groups = fields["groups"]
    parts = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // max(groups, 1))
    mu = parts.mean(-1, keepdim=True)
    rstd = torch.rsqrt(((parts - mu) ** 2).mean(-1, keepdim=True) + eps)
    if not x.numel():
        return {"y": x, "mu": mu[..., 0], "rstd": rstd[..., 0]}
    y = torch.nn.functional.group_norm(x, groups, tensors.get("gamma"), tensors.get("beta"), eps)
    return {"y": y if parts.shape[-1] > 1 else x * 0, "mu": mu[..., 0], "rstd": rstd[..., 0]}


def _batch_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, momentum = tensors["x"], fields["momentum"]
    axes = (0, *range(2, x.dim()))
    mu, spread = x.mean(axes), x.var(axes, unbiased=False)
    y = x * 0  # of one number a channel, which torch refuses, what is left is beta
    if x.numel() > x.shape[1]:
        affine = tensors["gamma"], tensors["beta"]
        y = torch.nn.functional.batch_norm(x, None, None, *affine, True, momentum, fields["eps"])
    elif x.numel():
        gamma, beta = (tensors[name].reshape(-1, *[1] * (x.dim() - 2)) for name in ("gamma", "beta"))
        y = (x - x) * gamma + beta
    new_mean = torch.lerp(tensors["running_mean"], mu, momentum)
    new_var = torch.lerp(tensors["running_var"], x.var(axes), momentum)
    return {"y": y, "mu": mu, "rstd": torch.rsqrt(spread + fields["eps"]), "new_mean": new_mean, "new_var": new_var}


def _var_mean(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x = tensors["x"]
    axes = [axis for axis in range(x.dim()) if fields["axes_mask"] >> axis & 1]
    if not axes:  # which torch takes for all
        return {"y": (x - x) ** 2 / max(1 - fields["correction"], 0), "mu": x * 1}
    y, mu = torch.var_mean(x, axes, correction=fields["correction"])
    return {"y": y, "mu": mu}


def _normalized(fields: Fields) -> tuple[int, ...]:
    """The extents of the normalized axes, which are the last ones."""
    shape = tuple(fields["input_shape"])
    return shape[len(shape) - fields["norm_axes_mask"].bit_count() :]


def _last(over: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(-len(over), 0))


def _shaped(tensor: Any, shape: tuple[int, ...]) -> Any:
    return None if tensor is None else tensor.reshape(shape)


def _softmax(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.softmax(tensors["x"], fields["softmax_axis"])}


def _log_softmax(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.log_softmax(tensors["x"], fields["softmax_axis"])}


# --------------------------------------------------------------------------------------------------- shapes, positions


def _repeat(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": tensors["x"].repeat(*fields["repeats"])}


def _alibi(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    scores, slopes = tensors["scores"], tensors["slopes"]
    queries, keys = (torch.arange(n, dtype=scores.dtype, device=scores.device) for n in scores.shape[2:])
    return {"y": scores + slopes[:, None, None] * (keys - queries[:, None])}


# ---------------------------------------------------------------------------------------------------------- attention


def _sdpa(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    scores, dead = _scores(torch, fields, tensors)
    attn = torch.where(dead, 0.0, torch.softmax(scores, -1))
    return {"attn": attn, "y": _attended(torch, fields, tensors, scores, dead)}


def _flash_sdpa(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
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


# -------------------------------------------------------------------------------------------------------- convolution


def _causal_conv1d(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
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


def _causal_conv1d_update(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
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


def _fp8_quantize(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, axis = tensors["x"], fields["quantize_axis"]
    if x.shape[axis] == 0:
        return {"q": x, "scale": x.new_ones([1 if i == axis % x.dim() else n for i, n in enumerate(x.shape)])}
    largest = x.abs().amax(axis, keepdim=True)
    scale = torch.where(largest == 0, 1.0, (largest / 448).clamp(min=2.0**-126))
    return {"q": x / scale, "scale": scale}


def _int8_quantize(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, axis = tensors["x"], fields["quantize_axis"]
    if x.shape[axis] == 0:
        return _fp8_quantize(torch, fields, tensors)
    largest = x.abs().amax(axis, keepdim=True)
    scale = torch.where(largest == 0, 1.0, (largest / 127).clamp(min=2.0**-126))
    return {"q": (x / scale).round(), "scale": scale}


def _swiglu(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.nn.functional.silu(tensors["gate"]) * tensors["up"]}


def _geglu(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    gate = tensors["gate"]
    return {"y": gate * (0.5 * torch.special.erfc(-gate * math.sqrt(0.5))) * tensors["up"]}


def _pad(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    widths = [fields[name] for name in ("left", "right", "top", "bottom")]
    return {"y": torch.nn.functional.pad(tensors["x"], widths, value=fields["value"])}


def _concat(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.cat((tensors["a"], tensors["b"]), 1)}


def _baddbmm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    scales = {"beta": fields["beta"], "alpha": fields["alpha"]}
    return {"y": torch.baddbmm(tensors["c"], tensors["a"], tensors["b"], **scales)}


def _linear_cross_entropy(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    logits = tensors["x"] @ tensors["w"].T
    of = _cross_entropy(torch, {**fields, "class_axis": -1}, {"logits": logits, "target": tensors["target"][:, None]})
    return {name: value[:, 0] for name, value in of.items()}


def _linear_swiglu(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    gate, up = (tensors["x"] @ tensors[name].T for name in ("w_gate", "w_up"))
    return {"y": torch.nn.functional.silu(gate) * up}


def _int4_linear(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    codes, depth = tensors["codes"].long(), fields["in_features"]
    each = (codes[..., None] >> 4 * torch.arange(8, device=codes.device) & 15).flatten(1)[:, :depth]
    scale, zero = (tensors[n].repeat_interleave(fields["group_size"], 1)[:, :depth] for n in ("scale", "zero"))
    return {"y": tensors["x"] @ ((each - zero) * scale).T}


def _nf4_linear(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    codes, depth = tensors["codes"].long(), fields["in_features"]
    each = torch.stack([codes >> 4, codes & 15], -1).flatten(1)[:, :depth]
    scale = tensors["absmax"].repeat_interleave(fields["group_size"], 1)[:, :depth]
    return {"y": tensors["x"] @ (tensors["table"][each] * scale).T}


def _scaled_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    left, right, of_rows, of_columns, *_ = tensors.values()
    products = left.double() @ right.double().t() * of_rows.double()[:, None] * of_columns.double()
    return {"y": products + tensors["bias"].double() if "bias" in tensors else products}


def _block_scaled_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    left, right, of_left, of_right = (tensor.double() for tensor in tensors.values())
    rows, depth = right.shape
    of_left = of_left.repeat_interleave(128, 1)[:, :depth]
    of_right = of_right.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :depth]
    return {"y": (left * of_left) @ (right * of_right).t()}


def _reduce_rows(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x = tensors["x"]
    axes = [axis for axis in range(x.dim()) if fields["axes_mask"] >> axis & 1]
    return {"total": x.sum(axes, keepdim=True), "average": x.mean(axes, keepdim=True)}


def _embedding(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    ids, table = tensors["ids"].long(), tensors["table"]
    inside = (ids >= 0) & (ids < fields["vocab_size"])
    padded = torch.nn.functional.pad(table, (0, 0, 0, 1))
    return {"y": torch.nn.functional.embedding(torch.where(inside, ids, fields["vocab_size"]), padded)}


def _segments(torch: Any, fields: Fields, tensors: Tensors, how: str, start: float) -> Any:
    """Of rows by the numbers of their segments; others go to one more."""
    ids, x, count = tensors["ids"].long().flatten(), tensors["x"], fields["segments"]
    rows = torch.full((count + 1, fields["width"]), start, dtype=x.dtype)
    where = torch.where((ids >= 0) & (ids < count), ids, count)[:, None].expand(-1, fields["width"])
    return rows.scatter_reduce(0, where, x.reshape(len(ids), fields["width"]), how)[:count]


def _segment_sum(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": _segments(torch, fields, tensors, "sum", 0.0)}


def _segment_mean(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    ones = {"ids": tensors["ids"], "x": torch.ones_like(tensors["x"][..., :1])}
    count = _segments(torch, {**fields, "width": 1}, ones, "sum", 0.0)
    return {"y": _segments(torch, fields, tensors, "sum", 0.0) / count.clamp(min=1), "count": count[:, 0]}


def _segment_fold(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    how, start = {"max": ("amax", -math.inf), "min": ("amin", math.inf), "prod": ("prod", 1.0)}[fields["kind"]]
    return {"y": _segments(torch, fields, tensors, how, start)}


def _rope(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x = tensors["x"]
    pairs = x.unflatten(-1, (-1, 2) if fields["interleaved"] else (2, fields["head_dim"] // 2))
    first, second = pairs.unbind(-1 if fields["interleaved"] else -2)
    other = torch.stack((-second, first), -1 if fields["interleaved"] else -2).flatten(-2)
    return {"y": x * tensors["cosines"][:, None] + other * tensors["sines"][:, None]}


def _avg_pool2d(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    windows = torch.nn.functional.pad(tensors["x"], (fields["pad"],) * 4)
    for axis in (2, 3):
        windows = windows.unfold(axis, fields["kernel"], fields["stride"])
    return {"y": windows.mean((-2, -1))}


def _cross_entropy(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    axis, classes = fields["class_axis"], tensors["logits"].shape[fields["class_axis"]]
    logits, target = tensors["logits"].movedim(axis, -1), tensors["target"].long().movedim(axis, -1)[..., 0]
    counts = (target != fields["ignore_index"]) & (target >= 0) & (target < classes)
    lse = torch.logsumexp(logits, -1)
    flat, kept = logits.reshape(-1, classes), torch.where(counts, target, -100).reshape(-1)
    loss = torch.zeros_like(lse) if not classes else torch.nn.functional.cross_entropy(
        flat, kept, reduction="none", label_smoothing=fields["smoothing"], ignore_index=-100
    ).reshape(lse.shape)
    loss = torch.where(counts, loss + fields["z_weight"] * lse**2, torch.zeros_like(loss))
    return {"loss": loss.unsqueeze(-1).movedim(-1, axis), "lse": lse.unsqueeze(-1).movedim(-1, axis)}


# --------------------------------------------------------------------------------------------------------- optimizers


def _adamw(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    p, m, v = _adamw_step(torch, fields, tensors, tensors["p"])
    return {"p_new": p, "m_new": m, "v_new": v}


def _adamw_master(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    w, m, v = _adamw_step(torch, fields, tensors, tensors["w"])
    return {"w_new": w, "m_new": m, "v_new": v, "p": w}


def _adamw_step(torch: Any, fields: Fields, tensors: Tensors, parameter: Any) -> tuple[Any, Any, Any]:
    betas, decay = (fields["beta1"], fields["beta2"]), fields["weight_decay"]
    p, rate = parameter.clone(), float(tensors["lr"])
    optimizer = torch.optim.AdamW([p], lr=rate, betas=betas, eps=fields["eps"], weight_decay=decay)
    m, v = tensors["m"].clone(), tensors["v"].clone()
    optimizer.state[p] = {"step": tensors["step"].reshape(()).cpu() - 1.0, "exp_avg": m, "exp_avg_sq": v}
    p.grad = tensors["g"].clone()
    optimizer.step()
    return p, m, v


def _lion(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    m, g, lr = (tensors[name] for name in ("m", "g", "lr"))
    way = torch.sign(fields["beta1"] * m + (1 - fields["beta1"]) * g)
    kept = tensors["p"] * (1 - lr * fields["weight_decay"])
    return {"p_new": kept - lr * way, "m_new": fields["beta2"] * m + (1 - fields["beta2"]) * g}


def _sgd(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    d = tensors["g"] + fields["weight_decay"] * tensors["p"]
    m = fields["momentum"] * tensors["m"] + (1 - fields["dampening"]) * d
    way = d + fields["momentum"] * m if fields["nesterov"] else m
    return {"p_new": tensors["p"] - tensors["lr"] * way, "m_new": m}


def _ema(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"average_new": torch.lerp(tensors["x"].to(tensors["average"].dtype), tensors["average"], tensors["decay"])}


def _clip_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    norm = torch.linalg.vector_norm(tensors["g"])
    return {"g_new": tensors["g"] * (fields["limit"] / (norm + fields["eps"])).clamp(max=1), "norm": norm}


FORWARD: dict[str, Values] = {
    "adamw": _adamw,
    "adamw_master": _adamw_master,
    "lion": _lion,
    "sgd": _sgd,
    "ema": _ema,
    "clip_norm": _clip_norm,
    **torch_kinds.FORWARD,
    **torch_experts.FORWARD,
    "swiglu": _swiglu,
    "geglu": _geglu,
    "dropout": torch_random.dropout,
    "random_values": torch_random.random_values,
    "pad2d": _pad,
    "concatenate": _concat,
    "dense_gemm": lambda torch, fields, tensors: {"y": tensors["a"] @ tensors["b"]},
    "baddbmm": _baddbmm,
    "linear_swiglu": _linear_swiglu,
    "int4_linear": _int4_linear,
    "nf4_linear": _nf4_linear,
    "linear_cross_entropy": _linear_cross_entropy,
    "scaled_mm": _scaled_mm,
    "block_scaled_mm": _block_scaled_mm,
    "int_mm": lambda torch, fields, tensors: {"y": tensors["a"].int() @ tensors["b"].int()},
    "quantized_linear": _scaled_mm,
    "reduce_rows": _reduce_rows,
    "embedding": _embedding,
    "segment_sum": _segment_sum,
    "segment_mean": _segment_mean,
    "segment_fold": _segment_fold,
    "rope": _rope,
    "avg_pool2d": _avg_pool2d,
    "cross_entropy": _cross_entropy,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "var_mean": _var_mean,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "repeat": _repeat,
    "alibi": _alibi,
    "sdpa": _sdpa,
    "flash_sdpa": _flash_sdpa,
    "causal_conv1d": _causal_conv1d,
    "causal_conv1d_update": _causal_conv1d_update,
    "fp8_quantize": _fp8_quantize,
    "int8_quantize": _int8_quantize,
}
