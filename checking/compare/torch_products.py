"""torch's matrix products and quantization (see `torch_values`)."""

from __future__ import annotations

from typing import Any

from .torch_tensors import Fields, Tensors


def fp8_quantize(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, axis = tensors["x"], fields["quantize_axis"]
    if x.shape[axis] == 0:
        return {"q": x, "scale": x.new_ones([1 if i == axis % x.dim() else n for i, n in enumerate(x.shape)])}
    largest = x.abs().amax(axis, keepdim=True)
    scale = torch.where(largest == 0, 1.0, (largest / 448).clamp(min=2.0**-126))
    return {"q": x / scale, "scale": scale}


def int8_quantize(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    x, axis = tensors["x"], fields["quantize_axis"]
    if x.shape[axis] == 0:
        return fp8_quantize(torch, fields, tensors)
    largest = x.abs().amax(axis, keepdim=True)
    scale = torch.where(largest == 0, 1.0, (largest / 127).clamp(min=2.0**-126))
    return {"q": (x / scale).round(), "scale": scale}


def baddbmm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    scales = {"beta": fields["beta"], "alpha": fields["alpha"]}
    return {"y": torch.baddbmm(tensors["c"], tensors["a"], tensors["b"], **scales)}


def linear_amax(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    y = tensors["x"] @ tensors["w"].T + (0.0 if tensors.get("bias") is None else tensors["bias"])
    sizes = torch.nn.functional.pad(y.abs(), (0, 1, 0, 1), value=-torch.inf)  # of none there is that
    of_rows, of_columns = sizes.amax(1)[:-1], sizes.amax(0)[:-1]
    return {"y": y, "amax": of_rows, "amax_of_columns": of_columns, "amax_of_all": sizes.max()}


def linear_swiglu(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    gate, up = (tensors["x"] @ tensors[name].T for name in ("w_gate", "w_up"))
    return {"y": torch.nn.functional.silu(gate) * up}


def int4_linear(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    codes, depth = tensors["codes"].long(), fields["in_features"]
    each = (codes[..., None] >> 4 * torch.arange(8, device=codes.device) & 15).flatten(1)[:, :depth]
    scale, zero = (tensors[n].repeat_interleave(fields["group_size"], 1)[:, :depth] for n in ("scale", "zero"))
    return {"y": tensors["x"] @ ((each - zero) * scale).T}


def nf4_linear(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    codes, depth = tensors["codes"].long(), fields["in_features"]
    each = torch.stack([codes >> 4, codes & 15], -1).flatten(1)[:, :depth]
    scale = tensors["absmax"].repeat_interleave(fields["group_size"], 1)[:, :depth]
    return {"y": tensors["x"] @ (tensors["table"][each] * scale).T}


def scaled_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    left, right, of_rows, of_columns, *_ = tensors.values()
    products = left.double() @ right.double().t() * of_rows.double()[:, None] * of_columns.double()
    return {"y": products + tensors["bias"].double() if "bias" in tensors else products}


def block_scaled_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    left, right, of_left, of_right = (tensor.double() for tensor in tensors.values())
    rows, depth = right.shape
    of_left = of_left.repeat_interleave(128, 1)[:, :depth]
    of_right = of_right.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :depth]
    return {"y": (left * of_left) @ (right * of_right).t()}
