"""Elementwise functions by kind, of NumPy and SciPy: second opinions of the ops that have a table of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import special

Table = Mapping[str, Callable[..., Any]]  # kind -> its function of the arrays, then of the fields


def by_kind(table: Table) -> Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]:
    """The adapter of an op with one output `y`."""

    def define(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        numbers = [value for value in fields.values() if isinstance(value, float)]
        with np.errstate(all="ignore"):
            return {"y": table[fields["kind"]](*arrays.values(), *numbers)}

    return define


def _elu(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(x))


UNARY: Table = {
    "identity": np.positive,
    "neg": np.negative,
    "abs": np.abs,
    "sign": lambda x: np.where(np.isnan(x), 0.0, np.sign(x)),
    "square": np.square,
    "cube": lambda x: np.power(x, 3),
    "reciprocal": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": special.exp10,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinc": np.sinc,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "trunc": np.trunc,
    "frac": lambda x: np.where(np.isinf(x), np.nan, np.fmod(x, 1.0)),
    "erf": special.erf,
    "erfc": special.erfc,
    "degrees": np.degrees,
    "radians": np.radians,
    "sigmoid": special.expit,
    "logit": special.logit,
    "logsigmoid": special.log_expit,
    "relu": lambda x: np.maximum(x, 0.0),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "relu_squared": lambda x: np.square(np.maximum(x, 0.0)),
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * np.power(x, 3))),
    "gelu_quick": lambda x: x * special.expit(1.702 * x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0.0, x)),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "selu": lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0.0, 1.0),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0.0, 1.0),
    "hardtanh": lambda x: np.clip(x, -1.0, 1.0),
}
PARAMETRIC: Table = {
    "leaky_relu": lambda x, a, b: np.where(x > 0, x, a * x),
    "elu": lambda x, a, b: _elu(x, a),
    "celu": lambda x, a, b: np.maximum(x, 0.0) + np.minimum(0.0, a * np.expm1(x / a)),
    "hardtanh": lambda x, a, b: np.clip(x, a, b),
    "threshold": lambda x, a, b: np.where(x <= a, b, x),
    "hardshrink": lambda x, a, b: np.where((x >= -a) & (x <= a), 0.0, x),
    "softshrink": lambda x, a, b: np.where(np.isnan(x), x, np.sign(x) * np.maximum(np.abs(x) - a, 0.0)),
    "affine": lambda x, a, b: a * x + b,
    "softplus": lambda x, a, b: np.logaddexp(0.0, a * x) / a,
    "logit": lambda x, a, b: special.logit(np.clip(x, a, 1 - a)),
    "pow": lambda x, a, b: np.power(x, a),
    "swish": lambda x, a, b: x * special.expit(a * x),
}
BINARY: Table = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "pow": np.power,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "copysign": np.copysign,
    "heaviside": np.heaviside,
    "logaddexp": np.logaddexp,
    "logaddexp2": np.logaddexp2,
    "xlogy": special.xlogy,
    "xlog1py": special.xlog1py,
    "squared_difference": lambda a, b: np.square(a - b),
    "absolute_difference": lambda a, b: np.abs(a - b),
    "prelu": lambda a, b: np.where(a > 0, a, a * b),
    "relu_add": lambda a, b: np.maximum(a + b, 0.0),
}
TERNARY: Table = {
    "fma": lambda a, b, c, v: a * b + c,
    "addcmul": lambda a, b, c, v: a + v * b * c,
    "addcdiv": lambda a, b, c, v: a + v * b / c,
    "lerp": lambda a, b, c, v: (1 - c) * a + c * b,
    "clamp": lambda a, b, c, v: np.minimum(np.maximum(a, b), c),
}
GATED: Table = {kind: lambda gate, up, kind=kind: UNARY[kind](gate) * up for kind in UNARY}
LOSS: Table = {
    "mse": lambda x, t, a: np.square(x - t),
    "l1": lambda x, t, a: np.abs(x - t),
    "huber": lambda x, t, a: special.huber(a, x - t),
    "smooth_l1": lambda x, t, a: special.huber(a, x - t) / a,
    "bce": lambda x, t, a: -(t * np.log(x) + (1 - t) * np.log(1 - x)),
    "bce_with_logits": lambda x, t, a: np.logaddexp(0.0, x) - t * x,
    "kl_div": lambda x, t, a: special.xlogy(t, t) - t * x,
    "soft_margin": lambda x, t, a: np.logaddexp(0.0, -t * x),
    "hinge": lambda x, t, a: np.maximum(0.0, a - t * x),
    "poisson": lambda x, t, a: np.exp(x) - t * x,
}
RELATION: Table = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "isnan_either": lambda a, b: np.isnan(a) | np.isnan(b),
}
PREDICATE: Table = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "logical_not": np.logical_not,
    "nonzero": lambda x: x.astype(bool),
    "positive": lambda x: np.greater(x, 0),
    "negative": lambda x: np.less(x, 0),
}
INT_BINARY: Table = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": lambda a, b: np.left_shift(a, b & 7),
    "right_shift": lambda a, b: np.right_shift(a, b & 7),
    "absolute_difference": lambda a, b: np.abs(a.astype(np.int64) - b).astype(a.dtype),
}
COMPLEX_UNARY: Table = {
    "neg": np.negative,
    "conj": np.conj,
    "square": np.square,
    "cube": lambda x: np.power(x, 3),
    "reciprocal": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.power(x, -0.5),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "sigmoid": lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),
    "sign": np.sign,
}
COMPLEX_BINARY: Table = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mul_conj": lambda a, b: a * np.conj(b),
    "div": np.divide,
    "scale": lambda a, b: a * np.abs(b),
}
COMPLEX_PARTS: Table = {
    "real": np.real,
    "imag": np.imag,
    "abs": np.abs,
    "square": lambda x: np.square(np.abs(x)),
    "angle": np.angle,
}
TABLES: Mapping[str, Table] = {
    "complex_unary": COMPLEX_UNARY,
    "complex_binary": COMPLEX_BINARY,
    "complex_parts": COMPLEX_PARTS,
    "unary": UNARY,
    "parametric": PARAMETRIC,
    "binary": BINARY,
    "ternary": TERNARY,
    "gated": GATED,
    "loss": LOSS,
    "relation": RELATION,
    "predicate": PREDICATE,
    "int_binary": INT_BINARY,
}
