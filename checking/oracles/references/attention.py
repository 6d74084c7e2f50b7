"""Attention by its definition, on whole matrices of scores.

Every key takes part in the sums, those of weight zero too. Bounds follow the kernels' sums: `_Sums` says how long their
chains are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import Arrays, Definition, Fields, Units
from .attention_weights import distance, scores, shared, softmax, turned, visible

# -------------------------------------------------------------------------------------------------------- definitions


def _sdpa(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    attn, _ = softmax(xp, scores(xp, fields, arrays), visible(fields))
    return {"attn": attn, "y": xp.matmul(attn, shared(fields, arrays["v"]))}


def _flash_sdpa(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    attn, lse = softmax(xp, scores(xp, fields, arrays), visible(fields))
    y = xp.matmul(attn, shared(fields, arrays["v"]))
    return {"y": xp.where((lse == -np.inf)[..., None], 0.0, y), "lse": lse}  # of no key, whatever the values are


# ------------------------------------------------------------------------------------------------------------- bounds


@dataclass(frozen=True)
class _Sums:
    """How a kernel sums; errors are in roundoffs of the accumulator, relative to the sum of magnitudes."""

    units: Units
    tensor_cores: bool

    @property
    def rounded(self) -> float:
        """The unit roundoff of weights that are multiplied with values."""
        return self.units.factors

    @property
    def lost(self) -> float:
        """Weights below this may become 0: subnormal powers, or what f16 rounds to zero."""
        powers = 2.0**-126 if self.units.acc > 2.0**-50 else 2.0**-1022
        return 2.0**-25 if self.rounded == 2.0**-11 else powers

    def product(self, terms: int) -> float:
        """The error of a sum of products: serial, by a truncating instruction for 16, or by three of these for f32."""
        if not self.tensor_cores or self.units.acc < 2.0**-50:
            return (terms + 4) * self.units.acc
        return (terms / 4 + 8 if self.rounded else terms + 12) * self.units.acc

    def row(self, terms: int) -> float:
        """The error of the sum of a row of powers, over 32 lanes, or over four lanes and tiles that rescale it."""
        return (terms / 4 + terms / 16 + 8 if self.tensor_cores else terms / 32 + 8) * self.units.acc


@dataclass(frozen=True)
class _Weights:
    """Probabilities by their definition in float64, with error bounds of intermediate values."""

    attn: Any
    lse: Any
    score: Any  # |error| of each visible score
    bend: Any  # the slope of softcap
    bend_error: Any


def _weights(fields: Fields, arrays: Arrays, sums: _Sums) -> _Weights:
    u = sums.units.acc
    size = abs(fields["scale"]) * (np.abs(arrays["q"]) @ turned(np.abs(shared(fields, arrays["k"]))))
    error, bend, bend_error = (sums.product(fields["d_k"]) + 2 * u) * size, 1.0, 0.0
    softcap = fields.get("softcap", 0.0)
    if softcap:
        plain = {n: a for n, a in arrays.items() if n in ("q", "k")}
        part = scores(np, fields, plain) / softcap
        bend = 1 - part * part
        error = np.where(np.isinf(size), 0, error)  # an infinite score is held below the cap exactly
        bend_error = 2 * error / softcap + 12 * u
        # Of halves up to this cap tanh(x) is 1 - 2 / (1 + exp(2 x)) on sm_90a, whose roundings are of the cap's size.
        by_cap = sums.rounded and softcap <= 64
        error = error + 6 * u * (softcap if by_cap else np.minimum(size, softcap))
        size = np.minimum(size, softcap)
    if "alibi_slopes" in arrays:
        size = size + np.abs(arrays["alibi_slopes"])[:, :, None, None] * np.abs(distance(fields))
    if "mask" in arrays:
        size = size + np.where(np.isinf(arrays["mask"]), 0, np.abs(arrays["mask"]))
    score = scores(np, fields, arrays)
    visible_keys = visible(fields) & (score != -np.inf)
    size, error = np.where(visible_keys, size, 0), np.where(visible_keys, error, 0)
    error = error + 3 * u * (size + size.max(axis=-1, keepdims=True, initial=0))
    return _Weights(*softmax(np, score, visible(fields)), np.where(visible_keys, error, 0), bend, bend_error)


def _forward_errors(fields: Fields, arrays: Arrays, units: Units, tensor_cores: bool) -> dict[str, Any]:
    arrays, sums = _plain(arrays), _Sums(units, tensor_cores)
    weights, keys = _weights(fields, arrays, sums), fields["key_len"]
    attn = weights.attn
    total = np.log1p((attn * np.expm1(weights.score)).sum(axis=-1, keepdims=True))
    total = np.fmin(total, weights.score.max(axis=-1, keepdims=True, initial=0)) + sums.row(keys)
    off = attn * np.expm1(weights.score + total + 8 * units.acc) + sums.lost
    off = np.fmin(off, 1 + sums.row(keys))  # weights are divided by their sum, however wrong scores are
    v = np.abs(shared(fields, arrays["v"]))
    adding = sums.product(keys) + (keys / 16 * units.acc if tensor_cores else 0) + sums.rounded
    finite = np.where(np.isfinite(weights.lse), weights.lse, 0)
    return {
        "attn": off,
        "y": off @ v + adding * ((attn + off) @ v),
        "lse": total[..., 0] + 4 * units.acc * (np.abs(finite) + np.log(max(1, keys)) + 1),
    }


def _sdpa_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    return _forward_errors(fields, arrays, units, tensor_cores=units.factors > 0)


def _flash_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    return _forward_errors(fields, arrays, units, tensor_cores=True)


def _sdpa_backward_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    arrays, sums = _plain(arrays), _Sums(units, tensor_cores=units.factors > 0)
    attn, off = arrays["attn"], slack.get("attn", 0.0)
    most = attn + off
    dp, dp_error, dp_size = _dp(fields, arrays, sums)
    delta = (attn * dp).sum(axis=-1, keepdims=True)
    delta_size = (most * dp_size).sum(axis=-1, keepdims=True)
    delta_error = (most * dp_error + off * np.abs(dp)).sum(axis=-1, keepdims=True)
    delta_error = delta_error + sums.row(fields["key_len"]) * delta_size
    ds = attn * (dp - delta)
    ds_error = off * np.abs(dp - delta) + most * (dp_error + delta_error)
    ds_error = ds_error + 3 * units.acc * most * (np.abs(dp) + np.abs(delta))
    errors = _products(fields, arrays, sums, (ds, ds_error), (attn, off + 0 * attn))
    return {**errors, "dmask": ds_error}


def _flash_backward_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    arrays, sums, u = _plain(arrays), _Sums(units, tensor_cores=True), units.acc
    weights = _weights(fields, arrays, sums)
    attn, lse = weights.attn, np.where(np.isfinite(weights.lse), np.abs(weights.lse), 0)[..., None]
    exponent = weights.score + _column(slack.get("lse", 0.0)) + 4 * u * (lse + 1)
    off = attn * np.expm1(exponent) + (sums.lost if not sums.rounded else 2.0**-126)
    dp, dp_error, _ = _dp(fields, arrays, sums)
    size = (np.abs(arrays["dy"]) * np.abs(arrays["y"])).sum(axis=-1, keepdims=True)
    delta = (arrays["dy"] * arrays["y"]).sum(axis=-1, keepdims=True)
    delta_error = (np.abs(arrays["dy"]) * slack.get("y", 0.0)).sum(axis=-1, keepdims=True)
    delta_error = delta_error + (fields["d_v"] / 8 + 4) * u * size
    ds = attn * (dp - delta)
    ds_error = off * np.abs(dp - delta) + (attn + off) * (dp_error + delta_error)
    ds_error = ds_error + 4 * u * (attn + off) * (np.abs(dp) + np.abs(delta))
    ds_error = np.abs(weights.bend) * ds_error + weights.bend_error * (np.abs(ds) + ds_error)
    ds = ds * weights.bend
    return _products(fields, arrays, sums, (ds, ds_error), (attn, off))


def _dp(fields: Fields, arrays: Arrays, sums: _Sums) -> tuple[Any, Any, Any]:
    """dy v^T, a bound on its error, and the sum of magnitudes."""
    v = turned(shared(fields, arrays["v"]))
    size = np.abs(arrays["dy"]) @ np.abs(v)
    return arrays["dy"] @ v, sums.product(fields["d_v"]) * size, size


def _products(
    fields: Fields, arrays: Arrays, sums: _Sums, ds: tuple[Any, Any], attn: tuple[Any, Any]
) -> dict[str, Any]:
    """Bounds on dq, dk and dv, from those on dS and the probabilities."""
    queries, heads, groups = fields["query_len"], fields["num_heads"], fields["num_kv_heads"]
    terms = queries * (heads // max(1, groups))
    lost = sums.lost if sums.rounded else 0.0  # by rounding to halves

    def product(left: tuple[Any, Any], right: Any, count: int) -> Any:
        value, error = left
        value = np.abs(value) + error
        return (error + (sums.product(count) + sums.rounded) * value + lost) @ np.abs(right)

    def of_group(x: Any) -> Any:
        return x.reshape(x.shape[0], groups, heads // max(1, groups), *x.shape[2:]).sum(axis=2)

    scale = abs(fields["scale"])
    of_key, of_value = (tuple(turned(x) for x in pair) for pair in (ds, attn))
    return {
        "dq": scale * product(ds, shared(fields, arrays["k"]), fields["key_len"]),
        "dk": scale * of_group(product(of_key, arrays["q"], terms)),
        "dv": of_group(product(of_value, arrays["dy"], terms)),
    }


def _plain(arrays: Arrays) -> dict[str, Any]:
    return {name: np.asarray(x, np.float64) for name, x in arrays.items()}


def _column(x: Any) -> Any:
    return np.asarray(x, np.float64)[..., None]


sdpa = Definition(errors=_sdpa_errors, values=_sdpa, skips_zeros=True)
sdpa_backward = Definition(errors=_sdpa_backward_errors, skips_zeros=True)
flash_sdpa = Definition(errors=_flash_errors, values=_flash_sdpa, skips_zeros=True)
flash_sdpa_backward = Definition(errors=_flash_backward_errors, skips_zeros=True)
