"""torch's normalizations, softmax and losses (see `torch_values`)."""

from __future__ import annotations

import math
from typing import Any

from .torch_tensors import Fields, Tensors


def rms_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, over = tensors["x"], _normalized(fields)
    rms = torch.sqrt((x * x).mean(_last(over), keepdim=True) + fields["eps"])
    gamma = _shaped(tensors.get("gamma"), over)
    y = torch.nn.functional.rms_norm(x, over, gamma, fields["eps"]) if x.numel() else x
    return {"y": y, "rms": rms}


def layer_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, over, eps = tensors["x"], _normalized(fields), fields["eps"]
    mu = x.mean(_last(over), keepdim=True)
    centred = x - mu.detach()  # changes nothing but torch's roundoff, which grows with the mean
    rstd = torch.rsqrt((centred * centred).mean(_last(over), keepdim=True) + eps)
    gamma, beta = (_shaped(tensors.get(name), over) for name in ("gamma", "beta"))
    y = torch.nn.functional.layer_norm(centred, over, gamma, beta, eps) if x.numel() else x
    return {"y": y, "mu": mu, "rstd": rstd}


def group_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, eps = tensors["x"], fields["eps"]
    groups = fields["groups"]
    parts = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // max(groups, 1))
    mu = parts.mean(-1, keepdim=True)
    rstd = torch.rsqrt(((parts - mu) ** 2).mean(-1, keepdim=True) + eps)
    if not x.numel():
        return {"y": x, "mu": mu[..., 0], "rstd": rstd[..., 0]}
    if parts.shape[-1] > 1:
        y = torch.nn.functional.group_norm(x, groups, tensors.get("gamma"), tensors.get("beta"), eps)
    else:
        y = _of_one_number(x, tensors) if "gamma" in tensors else x - x
    return {"y": y, "mu": mu[..., 0], "rstd": rstd[..., 0]}


def _of_one_number(x: Any, tensors: Tensors) -> Any:
    """What a norm over one number leaves, which torch refuses: beta."""
    gamma, beta = (tensors[name].reshape(-1, *[1] * (x.dim() - 2)) for name in ("gamma", "beta"))
    return (x - x) * gamma + beta


def batch_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, momentum = tensors["x"], fields["momentum"]
    axes = (0, *range(2, x.dim()))
    mu, spread = x.mean(axes), x.var(axes, unbiased=False)
    y = x
    if x.numel() > x.shape[1]:
        affine = tensors["gamma"], tensors["beta"]
        y = torch.nn.functional.batch_norm(x, None, None, *affine, True, momentum, fields["eps"])
    elif x.numel():
        y = _of_one_number(x, tensors)
    new_mean = torch.lerp(tensors["running_mean"], mu, momentum)
    new_var = torch.lerp(tensors["running_var"], x.var(axes), momentum)
    return {"y": y, "mu": mu, "rstd": torch.rsqrt(spread + fields["eps"]), "new_mean": new_mean, "new_var": new_var}


def var_mean(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x = tensors["x"]
    axes = [axis for axis in range(x.dim()) if fields["axes_mask"] >> axis & 1]
    if not axes:  # which torch takes for all
        return {"y": (x - x) ** 2 / max(1 - fields["correction"], 0), "mu": x * 1}
    mu, count = x.mean(axes, keepdim=True), math.prod(x.shape[axis] for axis in axes)
    rest = max(count - fields["correction"], 0)  # whose slope torch takes for negative
    return {"y": ((x - mu.detach()) ** 2).sum(axes) / rest, "mu": mu.squeeze(axes)}  # the sum of distances is 0


def _normalized(fields: Fields) -> tuple[int, ...]:
    """The extents of the normalized axes, which are the last ones."""
    shape = tuple(fields["input_shape"])
    return shape[len(shape) - fields["norm_axes_mask"].bit_count() :]


def _last(over: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(-len(over), 0))


def _shaped(tensor: Any, shape: tuple[int, ...]) -> Any:
    return None if tensor is None else tensor.reshape(shape)


def softmax(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.softmax(tensors["x"], fields["softmax_axis"])}


def log_softmax(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": torch.log_softmax(tensors["x"], fields["softmax_axis"])}


def linear_cross_entropy(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    logits = tensors["x"] @ tensors["w"].T
    of = cross_entropy(torch, {**fields, "class_axis": -1}, {"logits": logits, "target": tensors["target"][:, None]})
    return {name: value[:, 0] for name, value in of.items()}


def cross_entropy(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    axis, classes = fields["class_axis"], tensors["logits"].shape[fields["class_axis"]]
    logits, target = tensors["logits"].movedim(axis, -1), tensors["target"].long().movedim(axis, -1)[..., 0]
    counts = (target != fields["ignore_index"]) & (target >= 0) & (target < classes)
    lse = torch.logsumexp(logits, -1)
    flat, kept = logits.reshape(lse.numel(), classes), torch.where(counts, target, -100).reshape(-1)
    loss = (
        torch.zeros_like(lse)
        if not classes
        else torch.nn.functional.cross_entropy(
            flat, kept, reduction="none", label_smoothing=fields["smoothing"], ignore_index=-100
        ).reshape(lse.shape)
    )
    loss = torch.where(counts, loss + fields["z_weight"] * lse**2, torch.zeros_like(loss))
    return {"loss": loss.unsqueeze(-1).movedim(-1, axis), "lse": lse.unsqueeze(-1).movedim(-1, axis)}


def cross_entropy_with_gradient(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    with torch.enable_grad():
        logits = tensors["logits"].detach().requires_grad_()
        of = cross_entropy(torch, fields, {**tensors, "logits": logits})
        slope = tensors.get("dloss", torch.ones_like(of["loss"]))
        (dlogits,) = torch.autograd.grad(of["loss"], logits, slope, allow_unused=True)
    dlogits = torch.zeros_like(logits) if dlogits is None else dlogits
    return {**{name: value.detach() for name, value in of.items()}, "dlogits": dlogits}
