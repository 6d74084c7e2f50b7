"""torch's optimizers (see `torch_values`)."""

from __future__ import annotations

from typing import Any

from .torch_tensors import Fields, Tensors


def adamw(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    p, m, v = _adamw_step(torch, fields, tensors, tensors["p"])
    return {"p_new": p, "m_new": m, "v_new": v}


def adamw_master(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
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


def lion(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    m, g, lr = (tensors[name] for name in ("m", "g", "lr"))
    way = torch.sign(fields["beta1"] * m + (1 - fields["beta1"]) * g)
    kept = tensors["p"] * (1 - lr * fields["weight_decay"])
    return {"p_new": kept - lr * way, "m_new": fields["beta2"] * m + (1 - fields["beta2"]) * g}


def sgd(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    d = tensors["g"] + fields["weight_decay"] * tensors["p"]
    m = fields["momentum"] * tensors["m"] + (1 - fields["dampening"]) * d
    way = d + fields["momentum"] * m if fields["nesterov"] else m
    return {"p_new": tensors["p"] - tensors["lr"] * way, "m_new": m}


def ema(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"average_new": torch.lerp(tensors["x"].to(tensors["average"].dtype), tensors["average"], tensors["decay"])}


def clip_norm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    norm = torch.linalg.vector_norm(tensors["g"])
    return {"g_new": tensors["g"] * (fields["limit"] / (norm + fields["eps"])).clamp(max=1), "norm": norm}
