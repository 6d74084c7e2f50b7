"""torch's functions for the ops that have a table of kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Function = Callable[..., Any]  # of tensors, then of the op's numbers


def by_kind(own: Mapping[str, Callable[[Any], Function]] | None = None) -> Callable[..., dict[str, Any]]:
    """Values of an op with one output `y`: torch's function of the kind's name, but for its `own`, which take torch."""

    def values(torch: Any, fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        kind, numbers = fields["kind"], [v for v in fields.values() if isinstance(v, float)]
        function = own[kind](torch) if own and kind in own else next(_named(torch, kind))
        return {"y": function(*tensors.values(), *numbers)}

    return values


def _named(torch: Any, kind: str) -> Iterator[Function]:
    places = (torch, torch.nn.functional, torch.special)
    for function in (getattr(place, kind, None) for place in places):
        if function is not None:
            yield lambda *arguments, function=function: function(*[a for a in arguments if not isinstance(a, float)])


def _gate(kind: str) -> Callable[[Any], Function]:
    return lambda torch: lambda gate, up: values_of(torch, kind, gate) * up


def values_of(torch: Any, kind: str, x: Any) -> Any:
    return by_kind(UNARY)(torch, {"kind": kind}, {"x": x})["y"]


def _softplus(torch: Any) -> Function:
    """torch's own takes x for it from 20 on."""
    return lambda x: torch.logaddexp(x, torch.zeros_like(x))


UNARY: dict[str, Callable[[Any], Function]] = {
    "softplus": _softplus,
    "identity": lambda torch: lambda x: x * 1,
    "cube": lambda torch: lambda x: x**3,
    "cbrt": lambda torch: lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),
    "exp10": lambda torch: lambda x: 10.0**x,
    "degrees": lambda torch: torch.rad2deg,
    "radians": lambda torch: torch.deg2rad,
    "relu_squared": lambda torch: lambda x: torch.relu(x) ** 2,
    "gelu": lambda torch: lambda x: x * torch.special.erfc(x * -math.sqrt(0.5)) / 2,  # torch's own cancels far below 0
    "gelu_tanh": lambda torch: lambda x: x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
    "gelu_quick": lambda torch: lambda x: x * torch.sigmoid(1.702 * x),
}
PARAMETRIC: dict[str, Callable[[Any], Function]] = {
    "affine": lambda torch: lambda x, a, b: a * x + b,
    "leaky_relu": lambda torch: lambda x, a, b: torch.nn.functional.leaky_relu(x, a),
    "elu": lambda torch: lambda x, a, b: torch.nn.functional.elu(x, a),
    "celu": lambda torch: lambda x, a, b: torch.nn.functional.celu(x, a),
    "hardtanh": lambda torch: lambda x, a, b: torch.minimum(torch.maximum(x, x.new_tensor(a)), x.new_tensor(b)),
    "threshold": lambda torch: lambda x, a, b: torch.nn.functional.threshold(x, a, b),
    "hardshrink": lambda torch: lambda x, a, b: torch.nn.functional.hardshrink(x, a),
    "softshrink": lambda torch: lambda x, a, b: torch.nn.functional.softshrink(x, a),
    "softplus": lambda torch: lambda x, a, b: torch.logaddexp(a * x, torch.zeros_like(x)) / a,
    "swish": lambda torch: lambda x, a, b: x * torch.sigmoid(a * x),
    "logit": lambda torch: lambda x, a, b: torch.logit(x, a),
    "pow": lambda torch: lambda x, a, b: torch.pow(x, a),
}


def _but_nan(torch: Any, extreme: Callable[[Any, Any], Any]) -> Function:
    """Of two numbers, or of the one that is one; slopes go half to each of two that are equal, torch's to the first."""
    return lambda a, b: torch.where(a.isnan(), b, torch.where(b.isnan(), a, extreme(a, b)))


BINARY: dict[str, Callable[[Any], Function]] = {
    "fmax": lambda torch: _but_nan(torch, torch.maximum),
    "fmin": lambda torch: _but_nan(torch, torch.minimum),
    "heaviside": lambda torch: lambda a, b: torch.where(a > 0, 1.0, torch.where(a < 0, 0.0, torch.where(a == 0, b, a))),
    "squared_difference": lambda torch: lambda a, b: (a - b) ** 2,
    "absolute_difference": lambda torch: lambda a, b: torch.abs(a - b),
    "prelu": lambda torch: lambda a, b: torch.where(a > 0, a, a * b),
    "relu_add": lambda torch: lambda a, b: torch.relu(a + b),
    "floor_divide": lambda torch: lambda a, b: torch.div(a, b, rounding_mode="floor"),
}
TERNARY: dict[str, Callable[[Any], Function]] = {
    "clamp": lambda torch: lambda a, b, c, value: torch.minimum(torch.maximum(a, b), c),
    "fma": lambda torch: lambda a, b, c, value: a * b + c,
    "addcmul": lambda torch: lambda a, b, c, value: torch.addcmul(a, b, c, value=value),
    "addcdiv": lambda torch: lambda a, b, c, value: torch.addcdiv(a, b, c, value=value),
}
LOSS: dict[str, Callable[[Any], Function]] = {
    "mse": lambda torch: lambda x, t, delta: torch.nn.functional.mse_loss(x, t, reduction="none"),
    "l1": lambda torch: lambda x, t, delta: torch.nn.functional.l1_loss(x, t, reduction="none"),
    "huber": lambda torch: lambda x, t, delta: torch.nn.functional.huber_loss(x, t, reduction="none", delta=delta),
    "smooth_l1": lambda torch: (
        lambda x, t, delta: torch.nn.functional.smooth_l1_loss(x, t, reduction="none", beta=delta)
    ),
    "bce": lambda torch: lambda x, t, delta: -(t * torch.log(x) + (1 - t) * torch.log1p(-x)),
    "bce_with_logits": lambda torch: (
        lambda x, t, delta: torch.nn.functional.binary_cross_entropy_with_logits(x, t, reduction="none")
    ),
    "kl_div": lambda torch: lambda x, t, delta: torch.xlogy(t, t) - t * x,
    "soft_margin": lambda torch: lambda x, t, delta: _softplus(torch)(-t * x),
    "hinge": lambda torch: lambda x, t, delta: torch.relu(delta - t * x),
    "poisson": lambda torch: lambda x, t, delta: torch.exp(x) - t * x,
}
REDUCTION: dict[str, Callable[[Any], Function]] = {  # of an array and the axis that has the cells to reduce
    "sum": lambda torch: torch.sum,
    "mean": lambda torch: torch.mean,
    "prod": lambda torch: torch.prod,
    "max": lambda torch: torch.amax,
    "min": lambda torch: torch.amin,
    "count_nonzero": lambda torch: torch.count_nonzero,
    "norm1": lambda torch: lambda x, axis: torch.linalg.vector_norm(x, 1, axis),
    "norm2": lambda torch: lambda x, axis: torch.linalg.vector_norm(x, 2, axis),
    "norm_inf": lambda torch: lambda x, axis: torch.linalg.vector_norm(x, float("inf"), axis),
    "squares": lambda torch: lambda x, axis: torch.sum(x * x, axis),
    "argmax": lambda torch: torch.argmax,
    "argmin": lambda torch: torch.argmin,
    "any": lambda torch: lambda x, axis: torch.any(x != 0, axis),
    "all": lambda torch: lambda x, axis: torch.all(x != 0, axis),
    "any_nan": lambda torch: lambda x, axis: torch.any(torch.isnan(x), axis),
    "all_finite": lambda torch: lambda x, axis: torch.all(torch.isfinite(x), axis),
}


# What torch refuses to say.
_OF_NOTHING = {"max": "least", "min": "most", "norm_inf": "least", "argmax": "none", "argmin": "none"}


COMPLEX_UNARY: dict[str, Callable[[Any], Function]] = {
    "cube": lambda torch: lambda x: x * x * x,
    "sigmoid": lambda torch: lambda x: 1 / (1 + torch.exp(-x)),
    "sign": lambda torch: torch.sgn,
}
COMPLEX_BINARY: dict[str, Callable[[Any], Function]] = {
    "mul_conj": lambda torch: lambda a, b: a * b.conj(),
    "scale": lambda torch: lambda a, b: b.abs() * a,
}
COMPLEX_PARTS: dict[str, Callable[[Any], Function]] = {
    "square": lambda torch: lambda x: x.real * x.real + x.imag * x.imag,
}


def _along_axes(torch: Any, fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    (x,) = tensors.values()
    x = x if x.is_floating_point() or x.dtype == torch.bool else x.long()  # torch has little for unsigned ints
    gone = [axis for axis in range(x.dim()) if fields["axes_mask"] >> axis & 1]
    kept = [axis for axis in range(x.dim()) if axis not in gone]
    if not math.prod(x.shape[axis] for axis in gone) and fields["kind"] in _OF_NOTHING:
        limits = {"least": -math.inf, "most": math.inf}
        if not x.is_floating_point():
            limits = {"least": torch.iinfo(torch.int64).min, "most": torch.iinfo(torch.int64).max}
        value = {**limits, "none": -1}[_OF_NOTHING[fields["kind"]]]
        return torch.full([x.shape[axis] for axis in kept], value)
    reduce = REDUCTION[fields["kind"]](torch)
    if gone and gone == [*range(gone[0], gone[-1] + 1)]:
        return reduce(x.flatten(gone[0], gone[-1]), gone[0])
    rows = x.permute(*kept, *gone).reshape(*(x.shape[axis] for axis in kept), math.prod(x.shape[axis] for axis in gone))
    return reduce(rows, -1)


def _loss_along(torch: Any, fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    losses = by_kind(LOSS)(torch, fields, tensors)["y"]
    axes = [axis for axis in range(losses.dim()) if fields["axes_mask"] >> axis & 1]
    if not axes:  # which torch takes for all of them
        return losses
    return losses.mean(axes) if fields["average"] else losses.sum(axes)


def _in_64_bits(own: dict[str, Callable[[Any], Function]]) -> Callable[..., dict[str, Any]]:
    """Of ints, for torch has little for unsigned ones."""

    def values(torch: Any, fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        of = by_kind(own)(torch, fields, {name: tensor.long() for name, tensor in tensors.items()})
        return {name: value.to(next(iter(tensors.values())).dtype) for name, value in of.items()}

    return values


def _by_none(torch: Any, divided: Function) -> Function:
    """0 where the divisor is 0, as NumPy says and torch refuses to."""
    return lambda a, b: torch.where(b == 0, 0, divided(a, torch.where(b == 0, 1, b)))


_GATES = ("identity", "sigmoid", "tanh", "relu", "relu_squared", "silu", "gelu", "gelu_tanh", "gelu_quick", "mish")


def _linear(torch: Any, fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    before = torch.nn.functional.linear(tensors["x"], tensors["w"], tensors.get("bias"))
    return {"y": values_of(torch, fields["kind"], before)}


def _complex_along_axes(torch: Any, fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Sums of both parts, or of their conjugates'."""
    kind = {"sum_conj": "sum"}.get(fields["kind"], fields["kind"])
    x = tensors["x"].conj() if fields["kind"] == "sum_conj" else tensors["x"]
    parts = (_along_axes(torch, {**fields, "kind": kind}, {"x": part}) for part in (x.real, x.imag))
    return {"y": torch.complex(*parts)}


FORWARD: dict[str, Callable[..., dict[str, Any]]] = {
    "complex_unary": by_kind(COMPLEX_UNARY),
    "complex_binary": by_kind(COMPLEX_BINARY),
    "complex_parts": by_kind(COMPLEX_PARTS),
    "reduce_axes_complex": _complex_along_axes,
    "reduce_axes_modulus": lambda torch, fields, tensors: {"y": _along_axes(torch, fields, {"x": tensors["x"].abs()})},
    "linear": _linear,
    "reduce_axes": lambda *of: {"y": _along_axes(*of)},
    "reduce_axes_int": lambda *of: {"y": _along_axes(*of)},
    "reduce_axes_bool": lambda *of: {"y": _along_axes(*of)},
    "reduce_axes_arg": lambda *of: {"at": _along_axes(*of)},
    "unary": by_kind(UNARY),
    "parametric": by_kind(PARAMETRIC),
    "binary": by_kind(BINARY),
    "ternary": by_kind(TERNARY),
    "pointwise_loss": by_kind(LOSS),
    "reduced_loss": lambda *of: {"y": _loss_along(*of)},
    "gated": by_kind({kind: _gate(kind) for kind in (*_GATES, "hardswish", "softplus")}),
    "relation": by_kind(
        {
            "equal": lambda torch: torch.eq,
            "isnan_either": lambda torch: lambda a, b: torch.isnan(a) | torch.isnan(b),
        }
    ),
    "predicate": by_kind(
        {
            "nonzero": lambda torch: lambda x: x != 0,
            "positive": lambda torch: lambda x: x > 0,
            "negative": lambda torch: lambda x: x < 0,
        }
    ),
    "conditional": lambda torch, fields, tensors: {"y": torch.where(*tensors.values())},
    "int_binary": _in_64_bits(
        {
            "sub": lambda torch: torch.sub,
            "remainder": lambda torch: _by_none(torch, torch.remainder),
            "floor_divide": lambda torch: _by_none(torch, torch.floor_divide),
            "left_shift": lambda torch: lambda a, b: a << (b & 7),
            "right_shift": lambda torch: lambda a, b: a >> (b & 7),
            "absolute_difference": lambda torch: lambda a, b: torch.abs(a - b),
        }
    ),
}
