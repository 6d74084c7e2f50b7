"""The gate of a mixture of experts and the permutation of its rows, by their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import Arrays, Definition, Fields, Units


def _ranked(logits: Any) -> Any:
    """Places in descending order, of equal numbers the first; a NaN comes before all numbers."""
    nan = np.isnan(logits)
    return np.lexsort((-np.where(nan, 0.0, logits), ~nan), axis=-1)


def _topk_softmax(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    logits = arrays["logits"]
    ids = _ranked(getattr(logits, "_value", logits))[:, : fields["top_k"]]  # of numbers that autograd follows, too
    rows = np.arange(len(ids))[:, None]
    largest = logits[rows, ids[:, :1]]
    with np.errstate(invalid="ignore"):
        powers = xp.exp(logits[rows, ids] - largest)
        added = powers if fields["renormalize"] else xp.exp(logits - largest)
    return {"weights": powers / xp.sum(added, axis=1, keepdims=True), "ids": ids}


def _gate_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    """A power is off by the rounding of its exponent and 4 roundoffs, the total by its pairwise additions, too."""
    logits = np.asarray(arrays["logits"], np.float64)
    ids = _ranked(logits)[:, : fields["top_k"]]
    with np.errstate(invalid="ignore"):
        away = logits - np.take_along_axis(logits, ids[:, :1], 1)
    powers = np.exp(away)
    of_powers = powers * (np.abs(away) + 4) * units.acc
    chosen, of_chosen = (np.take_along_axis(of, ids, 1) for of in (powers, of_powers))
    added, of_added = (chosen, of_chosen) if fields["renormalize"] else (powers, of_powers)
    with np.errstate(invalid="ignore"):
        total = added.sum(1, keepdims=True)
        lost = of_added.sum(1, keepdims=True) + (np.log2(added.shape[1]) + 2) * units.acc * total
        weights = chosen / total
        error = of_chosen / total + weights * (lost / total + units.acc)
    return {"weights": np.nan_to_num(error, nan=0.0), "ids": np.zeros(ids.shape)}


def _gate_backward_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    """Each sum and product rounds, a power as in the gate; saved weights are as far off as they are."""
    logits, weights, grads = (np.asarray(arrays[n], np.float64) for n in ("logits", "weights", "dweights"))
    ids, off = np.asarray(arrays["ids"], np.int64), slack.get("weights", 0.0) + np.zeros(weights.shape)
    with np.errstate(invalid="ignore"):
        shared = (weights * grads).sum(1, keepdims=True)
        lost = (off * np.abs(grads)).sum(1, keepdims=True)
        lost += (np.log2(ids.shape[1]) + 2) * units.acc * np.abs(weights * grads).sum(1, keepdims=True)
        chosen = off * np.abs(grads - shared)
        chosen += np.abs(weights) * (lost + 2 * units.acc * (np.abs(grads) + np.abs(shared)))
        away = logits - np.take_along_axis(logits, ids[:, :1], 1)
        powers = np.exp(away)
        of_powers = off[:, :1] * powers + weights[:, :1] * powers * (np.abs(away) + 6) * units.acc
        error = of_powers * np.abs(shared) + weights[:, :1] * powers * lost
    error = np.zeros(logits.shape) if fields["renormalize"] else error
    np.put_along_axis(error, ids, chosen, 1)
    return {"dlogits": np.nan_to_num(error, nan=0.0, posinf=np.inf)}


def _moe_permute(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    ids, experts = np.asarray(arrays["ids"], np.int64), fields["experts"]
    keys = np.where((ids < 0) | (ids >= experts), experts, ids).ravel()
    order = np.argsort(keys, kind="stable")
    places = np.empty(keys.size, np.int64)
    places[order] = np.arange(keys.size)
    counts = np.bincount(keys, minlength=experts + 1)[:experts]
    rows = arrays["x"][order // max(fields["top_k"], 1)]
    return {"rows": rows, "places": places.reshape(ids.shape), "ends": np.cumsum(counts)}


def _exact(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    return dict.fromkeys(("rows", "places", "ends"), 0.0)


def _moe_permute_backward_errors(
    fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units
) -> dict[str, Any]:
    """Each addition rounds what has been added up."""
    grads, places = np.abs(np.asarray(arrays["drows"], np.float64)), np.asarray(arrays["places"], np.int64)
    added = grads[places].sum(1) if places.size else np.zeros((fields["tokens"], fields["width"]))
    return {"dx": fields["top_k"] * units.acc * added}


topk_softmax = Definition(_gate_errors, _topk_softmax)
topk_softmax_backward = Definition(_gate_backward_errors)
moe_permute = Definition(_exact, _moe_permute)
moe_permute_backward = Definition(_moe_permute_backward_errors)
