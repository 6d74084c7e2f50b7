"""The ops in torch's own words, as users write them; gradients are automatic unless `BACKWARD` has a shorter way.

An op that is in neither table has its program's peer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from baracuda.checking.compare.torch_kinds import FORWARD as KINDS
from baracuda.checking.compare.torch_random import dropout, random_values

from ..case import Case
from . import Body, Call, Tensors
from ._program import Program

Fields = Mapping[str, Any]
Function = Callable[[Fields, Tensors], dict[str, Any]]


def _rms_norm(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": F.rms_norm(t["x"], over := _over(fields), _shaped(t, "gamma", over), fields.get("eps", 1e-6))}


def _layer_norm(fields: Fields, t: Tensors) -> dict[str, Any]:
    over = _over(fields)
    gamma, beta = _shaped(t, "gamma", over), _shaped(t, "beta", over)
    return {"y": F.layer_norm(t["x"], over, gamma, beta, fields.get("eps", 1e-6))}


def _group_norm(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": F.group_norm(t["x"], fields["groups"], t.get("gamma"), t.get("beta"), fields.get("eps", 1e-5))}


def _batch_norm(fields: Fields, t: Tensors) -> dict[str, Any]:
    """With running statistics in place, as the layer does it."""
    running = (t["new_mean"], t["new_var"]) if "new_mean" in t else (None, None)
    eps, momentum = fields.get("eps", 1e-5), fields.get("momentum", 0.1)
    return {"y": F.batch_norm(t["x"], *running, t["gamma"], t["beta"], True, momentum, eps)}


def _var_mean(fields: Fields, t: Tensors) -> dict[str, Any]:
    axes = [axis for axis in range(t["x"].dim()) if fields["axes_mask"] >> axis & 1]
    y, mu = torch.var_mean(t["x"], axes, correction=fields["correction"])
    return {"y": y, "mu": mu}


def _over(fields: Fields) -> tuple[int, ...]:
    shape = tuple(fields["input_shape"])
    return shape[len(shape) - fields["norm_axes_mask"].bit_count() :]


def _shaped(t: Tensors, name: str, shape: tuple[int, ...]) -> Any:
    """An optional array, which plans also take flat, as torch wants it."""
    return t[name].reshape(shape) if name in t else None


def _reduce_rows(fields: Fields, t: Tensors) -> dict[str, Any]:
    axes = [axis for axis in range(t["x"].dim()) if fields["axes_mask"] >> axis & 1]
    return {"total": t["x"].sum(axes, keepdim=True), "average": t["x"].mean(axes, keepdim=True)}


def _softmax(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": torch.softmax(t["x"], fields["softmax_axis"])}


def _softmax_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"dx": torch._softmax_backward_data(t["dy"], t["y"], fields["softmax_axis"], t["y"].dtype)}


def _log_softmax_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"dx": torch._log_softmax_backward_data(t["dy"], t["y"], fields["softmax_axis"], t["y"].dtype)}


def _log_softmax(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": torch.log_softmax(t["x"], fields["softmax_axis"])}


def _distance(fields: Fields, like: Any) -> Any:
    """Made where it is used: a bf16 one in memory is inexact past 256, and traffic that nobody counts."""
    keys = torch.arange(fields["key_len"], device=like.device)
    return (keys[None, :] - torch.arange(fields["query_len"], device=like.device)[:, None]).to(_wide(like))


def _wide(tensor: Any) -> Any:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _alibi(fields: Fields, t: Tensors) -> dict[str, Any]:
    scores, wide = t["scores"], _wide(t["scores"])
    bias = t["slopes"].to(wide)[None, :, None, None] * _distance(fields, scores)
    return {"y": (scores.to(wide) + bias).to(scores.dtype)}


def _alibi_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    dy, grads = t["dy"], {}
    if fields.get("has_dscores", True):
        grads["dscores"] = dy.clone()
    if fields.get("has_dslopes", True):
        grads["dslopes"] = (dy.to(_wide(dy)) * _distance(fields, dy)).sum((0, 2, 3)).to(dy.dtype)
    return grads


def _repeat(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": t["x"].repeat(*fields["repeats"])}


def _repeat_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    cells = [n for pair in zip(fields["repeats"], fields["input_shape"], strict=True) for n in pair]
    return {"dx": t["dy"].view(cells).sum(tuple(range(0, len(cells), 2)))}


def _sdpa(fields: Fields, t: Tensors) -> dict[str, Any]:
    attn = torch.softmax(t["q"] @ t["k"].transpose(-2, -1) * fields["scale"], -1)
    return {"attn": attn, "y": attn @ t["v"]}


def _causal_conv1d(fields: Fields, t: Tensors) -> dict[str, Any]:
    x, weight = t["x"], t["weight"]
    halo = fields["width"] - 1
    pre = F.conv1d(x, weight[:, None], t.get("bias"), padding=halo, groups=x.shape[1])[..., : x.shape[2]]
    return {"y": F.silu(pre) if fields["use_silu"] else pre}


def _causal_conv1d_update(fields: Fields, t: Tensors) -> dict[str, Any]:
    x, state = t["x"], t["conv_state"]
    extended = torch.cat([state[..., state.shape[2] - fields["width"] + 1 :], x], 2)
    pre = F.conv1d(extended, t["weight"][:, None], t.get("bias"), groups=x.shape[1])
    state.copy_(torch.cat([state, x], 2)[..., x.shape[2] :])
    return {"y": F.silu(pre) if fields["use_silu"] else pre, "conv_state": state}


def _fp8_quantize(fields: Fields, t: Tensors) -> dict[str, Any]:
    largest = t["x"].abs().amax(fields["quantize_axis"], keepdim=True).to(torch.float32)
    scale = torch.where(largest == 0, 1.0, (largest / 448).clamp(min=2.0**-126))
    return {"q": (t["x"].to(torch.float32) * (1 / scale)).to(torch.float8_e4m3fn), "scale": scale}


def _swiglu(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": F.silu(t["gate"]) * t["up"]}


def _geglu(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": F.gelu(t["gate"]) * t["up"]}


def _embedding(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": F.embedding(t["ids"], t["table"])}


def _embedding_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"dtable": torch.ops.aten.embedding_dense_backward(t["dy"], t["ids"], fields["vocab_size"], -1, False)}


def _segment_sum(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": _segments(fields, t, 0.0).index_add_(0, t["ids"].flatten(), _rows(t))}


def _segment_mean(fields: Fields, t: Tensors) -> dict[str, Any]:
    count = torch.bincount(t["ids"].flatten(), minlength=fields["segments"]).to(_wide(t["x"]))
    return {"y": _segment_sum(fields, t)["y"] / count.clamp(min=1)[:, None].to(t["x"].dtype), "count": count}


def _segment_fold(fields: Fields, t: Tensors) -> dict[str, Any]:
    how, start = {"max": ("amax", -math.inf), "min": ("amin", math.inf), "prod": ("prod", 1.0)}[fields["kind"]]
    ids, rows = t["ids"].flatten().long(), _rows(t)
    return {"y": _segments(fields, t, start).scatter_reduce_(0, ids[:, None].expand_as(rows), rows, how)}


def _segments(fields: Fields, t: Tensors, start: float) -> Any:
    return torch.full((fields["segments"], fields["width"]), start, dtype=t["x"].dtype, device=t["x"].device)


def _rows(t: Tensors) -> Any:
    return t["x"].reshape(-1, t["x"].shape[-1])


def _of_kinds(function: Callable[..., dict[str, Any]], fields: Fields, t: Tensors) -> dict[str, Any]:
    """By a function of the inputs alone: of an op with a table of kinds."""
    return function(torch, fields, {name: tensor for name, tensor in t.items() if name not in ("y", "at", "dy")})


def _grouped_mm(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": torch._grouped_mm(t["x"], t["w"].mT, offs=t["ends"])}


def _k_grouped_mm(fields: Fields, t: Tensors) -> dict[str, Any]:
    """A product for each group: torch._grouped_mm of matrices takes no groups of odd sizes."""
    ends = t["ends"].tolist()
    pairs = zip([0, *ends], ends, strict=False)
    return {"y": torch.stack([t["a"][:, begin:end] @ t["b"][begin:end] for begin, end in pairs])}


def _linear_amax(fields: Fields, t: Tensors) -> dict[str, Any]:
    y = F.linear(t["x"], t["w"], None if t.get("bias") is None else t["bias"].to(t["x"].dtype))
    size = y.abs()
    largest = {"amax": size.amax(1), "amax_of_columns": size.amax(0), "amax_of_all": size.max()}
    return {"y": y, **{name: value.to(_wide(y)) for name, value in largest.items()}}


def _linear_swiglu(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": F.silu(F.linear(t["x"], t["w_gate"])) * F.linear(t["x"], t["w_up"])}


def _grouped_swiglu(fields: Fields, t: Tensors) -> dict[str, Any]:
    gate, up = (torch._grouped_mm(t["x"], t[name].mT, offs=t["ends"]) for name in ("w_gate", "w_up"))
    return {"y": F.silu(gate) * up}


def _topk_softmax(fields: Fields, t: Tensors) -> dict[str, Any]:
    weights, ids = torch.softmax(t["logits"].float(), 1).topk(fields["top_k"])
    return {"weights": weights / weights.sum(1, keepdim=True) if fields["renormalize"] else weights, "ids": ids.int()}


def _moe_permute(fields: Fields, t: Tensors) -> dict[str, Any]:
    order = torch.argsort(t["ids"].flatten(), stable=True)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    ends = torch.bincount(t["ids"].flatten(), minlength=fields["experts"]).cumsum(0)
    rows = t["x"][order // fields["top_k"]]
    return {"rows": rows, "places": places.reshape(t["ids"].shape).int(), "ends": ends.int()}


def _topk_softmax_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    weights, ids = t["weights"], t["ids"].long()
    common = (weights * t["dweights"]).sum(1, keepdim=True)
    logits = t["logits"].to(weights.dtype)
    if fields["renormalize"]:
        slopes = torch.zeros_like(logits)
    else:
        slopes = -weights[:, :1] * torch.exp(logits - logits.gather(1, ids[:, :1])) * common
    slopes.scatter_(1, ids, weights * (t["dweights"] - common))
    return {"dlogits": slopes.to(t["logits"].dtype)}


def _moe_permute_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"dx": t["drows"][t["places"].long()].sum(1)}


def _moe_combine(fields: Fields, t: Tensors) -> dict[str, Any]:
    read = t["rows"][t["places"].long()]
    return {"y": torch.einsum("tk,tkw->tw", t["weights"].to(read.dtype), read)}


def _scaled_mm(fields: Fields, t: Tensors) -> dict[str, Any]:
    scales = t["scale_a"][:, None], t["scale_b"][None, :]
    return {"y": torch._scaled_mm(t["a"], t["b"].t(), *scales, bias=t.get("bias"), out_dtype=fields["element"])}


def _of_blocks(scale: Any, of: Any, rows: int) -> Any:
    """The scale of each element, where so many rows and 128 columns have one."""
    return scale.repeat_interleave(rows, 0)[: of.shape[0]].repeat_interleave(128, 1)[:, : of.shape[1]]


def _block_scaled_mm(fields: Fields, t: Tensors) -> dict[str, Any]:
    """With scales of a whose rows are contiguous, and fours of rows and of blocks, as cuBLAS takes them.

    On a CPU, which has no such product, by the definition.
    """
    a, scale_a, scale_b = t["a"], t["scale_a"], t["scale_b"]
    if not a.is_cuda:
        left, right = (
            of.float() * _of_blocks(scale, of, rows) for of, scale, rows in ((a, scale_a, 1), (t["b"], scale_b, 128))
        )
        return {"y": (left @ right.T).to(fields["element"])}
    rows, parts = -len(a) % 4, -scale_b.shape[1] % 4
    y = F.scaled_mm(
        F.pad(a.view(torch.uint8), (0, 0, 0, rows)).view(a.dtype) if rows else a,
        t["b"].t(),
        F.pad(scale_a, (0, 0, 0, rows)).t().contiguous().t(),
        F.ScalingType.BlockWise1x128,
        F.pad(scale_b, (0, parts)).t(),
        F.ScalingType.BlockWise128x128,
        output_dtype=fields["element"],
    )
    return {"y": y[: len(a)]}


def _quantized_linear(fields: Fields, t: Tensors) -> dict[str, Any]:
    """With rows of zeros, where there are fewer than torch takes."""
    x, rows = t["x"], len(t["x"])
    sums = torch._int_mm(F.pad(x, (0, 0, 0, max(0, _FEWEST_ROWS - rows))), t["w"].t())[:rows]
    y = sums * t["scale_x"][:, None] * t["scale_w"]
    return {"y": (y + t["bias"] if "bias" in t else y).to(fields["element"])}


_FEWEST_ROWS = 17  # of torch._int_mm


def _linear_cross_entropy(fields: Fields, t: Tensors) -> dict[str, Any]:
    """With all logits in memory: those of the product, rounded, and what the loss is computed of."""
    x, target, ignored = t["x"], t["target"].long(), fields["ignore_index"]
    logits = F.linear(x, t["w"]).to(_wide(x))
    counts = (target != ignored) & (target >= 0) & (target < fields["classes"])
    lse = torch.logsumexp(logits, 1)
    options: dict[str, Any] = {"ignore_index": ignored, "label_smoothing": fields.get("smoothing", 0.0)}
    loss = F.cross_entropy(logits, torch.where(counts, target, ignored), reduction="none", **options)
    if z_weight := fields.get("z_weight", 0.0):
        loss = loss + torch.where(counts, z_weight * lse * lse, 0.0)
    return {"loss": loss, "lse": lse}


def _cross_entropy_with_gradient(fields: Fields, t: Tensors) -> dict[str, Any]:
    """By the formula, which torch.compile fuses: autograd would keep the logarithms of all probabilities."""
    target, classes, dloss = t["target"].long(), t["logits"].shape[-1], t.get("dloss", 1.0)
    smoothing, z_weight = fields.get("smoothing", 0.0), fields.get("z_weight", 0.0)
    logits = t["logits"].to(_wide(t["logits"]))
    counts = (target != fields.get("ignore_index", -100)) & (target >= 0) & (target < classes)
    kept = torch.where(counts, target, 0)
    lse = torch.logsumexp(logits, -1, keepdim=True)
    loss = (1 - smoothing) * (lse - logits.gather(-1, kept)) + smoothing * (lse - logits.mean(-1, keepdim=True))
    share = torch.where(torch.arange(classes, device=target.device) == kept, 1 - smoothing, 0.0) + smoothing / classes
    dlogits = dloss * ((1 + 2 * z_weight * lse) * torch.exp(logits - lse) - share)
    zero = torch.zeros_like(lse)
    loss = torch.where(counts, loss + z_weight * lse * lse, zero)
    return {"loss": loss, "lse": lse, "dlogits": torch.where(counts, dlogits, zero).to(t["logits"].dtype)}


def _max_pool2d(fields: Fields, t: Tensors) -> dict[str, Any]:
    sizes = fields["kernel"], fields.get("stride", fields["kernel"]), fields.get("pad", 0), fields.get("dilation", 1)
    y, indices = F.max_pool2d(t["x"], *sizes, return_indices=True)
    return {"y": y, "indices": indices}


def _max_pool2d_backward(fields: Fields, t: Tensors) -> dict[str, Any]:
    kernel, pad, dilation = fields["kernel"], fields.get("pad", 0), fields.get("dilation", 1)
    sizes = kernel, fields.get("stride", kernel), pad, dilation
    x = t["dy"].new_empty([fields[name] for name in ("batch", "channels", "height", "width")])
    each = ([size, size] for size in sizes)
    return {"dx": torch.ops.aten.max_pool2d_with_indices_backward(t["dy"], x, *each, False, t["indices"])}


def _reflect_pad2d(fields: Fields, t: Tensors) -> dict[str, Any]:
    return {"y": F.pad(t["x"], [fields[side] for side in ("left", "right", "top", "bottom")], mode="reflect")}


def _nf4_linear(fields: Fields, t: Tensors) -> dict[str, Any]:
    """With all weights in memory."""
    depth, codes = fields["in_features"], t["codes"].int()
    each = torch.stack([codes >> 4, codes & 15], -1).flatten(1)[:, :depth]
    scale = t["absmax"].repeat_interleave(fields.get("group_size", 64), 1)[:, :depth]
    return {"y": F.linear(t["x"], (t["table"][each] * scale).to(t["x"].dtype))}


def _int4_linear(fields: Fields, t: Tensors) -> dict[str, Any]:
    """With all weights in memory."""
    depth, each = fields["in_features"], fields.get("group_size", 128)
    codes = (t["codes"][..., None] >> torch.arange(0, 32, 4, device=t["codes"].device) & 15).flatten(1)[:, :depth]
    scale, zero = (t[name].repeat_interleave(each, 1)[:, :depth] for name in ("scale", "zero"))
    return {"y": F.linear(t["x"], (codes - zero) * scale)}


FORWARD: dict[str, Function] = {
    "grouped_mm": _grouped_mm,
    "k_grouped_mm": _k_grouped_mm,
    "linear_swiglu": _linear_swiglu,
    "linear_amax": _linear_amax,
    "grouped_swiglu": _grouped_swiglu,
    "topk_softmax": _topk_softmax,
    "moe_permute": _moe_permute,
    "moe_combine": _moe_combine,
    **{op: partial(_of_kinds, function) for op, function in KINDS.items()},
    "swiglu": _swiglu,
    "geglu": _geglu,
    "dropout": partial(dropout, torch),
    "random_values": partial(random_values, torch),
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "var_mean": _var_mean,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "alibi": _alibi,
    "repeat": _repeat,
    "sdpa": _sdpa,
    "causal_conv1d": _causal_conv1d,
    "causal_conv1d_update": _causal_conv1d_update,
    "fp8_quantize": _fp8_quantize,
    "dense_gemm": lambda fields, t: {"y": t["a"] @ t["b"]},
    "baddbmm": lambda fields, t: {
        "y": torch.baddbmm(t["c"], t["a"], t["b"], beta=fields["beta"], alpha=fields["alpha"])
    },
    "scaled_mm": _scaled_mm,
    "block_scaled_mm": _block_scaled_mm,
    "int_mm": lambda fields, t: {"y": torch._int_mm(t["a"], t["b"])},
    "quantized_linear": _quantized_linear,
    "linear_cross_entropy": _linear_cross_entropy,
    "cross_entropy_with_gradient": _cross_entropy_with_gradient,
    "int4_linear": _int4_linear,
    "max_pool2d": _max_pool2d,
    "reflect_pad2d": _reflect_pad2d,
    "nf4_linear": _nf4_linear,
    "reduce_rows": _reduce_rows,
    "embedding": _embedding,
    "segment_sum": _segment_sum,
    "segment_mean": _segment_mean,
    "segment_fold": _segment_fold,
}
BACKWARD: dict[str, Function] = {
    "embedding_backward": _embedding_backward,
    "alibi_backward": _alibi_backward,
    "repeat_backward": _repeat_backward,
    "max_pool2d_backward": _max_pool2d_backward,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
    "topk_softmax_backward": _topk_softmax_backward,
    "moe_permute_backward": _moe_permute_backward,
}


def body_of(case: Case, changed: Callable[[Any], Any] = lambda f: f) -> Body | None:
    """The op or its gradient, `changed` by a compiler perhaps; None where torch has no functions for it."""
    fields, gradient = {**case.values, "element": getattr(torch, str(case.element.row.numpy))}, case.spec.gradient
    direct = FORWARD.get(case.op) or BACKWARD.get(case.op)
    if direct is not None:
        function = changed(lambda tensors: direct(fields, tensors))
        return lambda tensors: lambda: function(dict(tensors))
    if gradient is None or gradient.of not in FORWARD:
        program = Program.of(case)
        if program is None:
            return None
        written = changed(program)
        return lambda tensors: lambda: written(tensors)
    forward = FORWARD[gradient.of]
    return gradient_of(case, changed(lambda tensors: forward(fields, tensors)))


def gradient_of(case: Case, forward: Callable[[dict[str, Any]], dict[str, Any]]) -> Body:
    """Gradients by `torch.autograd.grad`, of a forward that has run before the clock starts."""
    gradient = case.spec.gradient
    assert gradient is not None

    shapes = {t.name: t.shape for t in case.tensors(case.plan()) if t.role == "out"}
    wrt = {grad: source for grad, source in gradient.wrt.items() if grad in shapes}

    def prepared(tensors: Tensors) -> Call:
        like = next(tensors[grad] for grad in gradient.cotangents if grad in tensors)
        leaves = {  # an input that its own gradient does not depend on, such as beta, is not among the tensors
            source: (tensors[source].detach() if source in tensors else like.new_zeros(shapes[grad])).requires_grad_()
            for grad, source in wrt.items()
        }
        outputs = forward({**tensors, **leaves})
        pairs = [(outputs[output], tensors[grad]) for grad, output in gradient.cotangents.items() if grad in tensors]
        ends, slopes = [end for end, _ in pairs], [slope for _, slope in pairs]
        inputs = [leaves[source] for source in wrt.values()]

        def call() -> dict[str, Any]:
            return dict(zip(wrt, torch.autograd.grad(ends, inputs, slopes, retain_graph=True), strict=True))

        return call

    return prepared
