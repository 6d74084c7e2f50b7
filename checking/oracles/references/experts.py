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


def _chosen(fields: Fields, logits: Any) -> tuple[Any, Any, Any, Any]:
    """The ids, exponents, what they are exponents of, and those that are added up."""
    ids = _ranked(logits)[:, : fields["top_k"]]
    with np.errstate(invalid="ignore"):
        away = logits - np.take_along_axis(logits, ids[:, :1], 1)
    powers = np.exp(away)
    return ids, away, powers, np.take_along_axis(powers, ids, 1) if fields["renormalize"] else powers


def _topk_softmax(xp: Any, fields: Fields, arrays: Arrays) -> dict[str, Any]:
    ids, _, powers, added = _chosen(fields, arrays["logits"])
    weights = np.take_along_axis(powers, ids, 1) / added.sum(1, keepdims=True)
    return {"weights": weights, "ids": ids}


def _gate_errors(fields: Fields, arrays: Arrays, slack: Mapping[str, Any], units: Units) -> dict[str, Any]:
    """A power is off by the rounding of its exponent and 4 roundoffs, the total by its pairwise additions, too."""
    ids, away, powers, added = _chosen(fields, np.asarray(arrays["logits"], np.float64))
    with np.errstate(invalid="ignore"):
        of_powers = powers * (np.abs(away) + 4) * units.acc
        of_added = np.take_along_axis(of_powers, ids, 1) if fields["renormalize"] else of_powers
        total = added.sum(1, keepdims=True)
        lost = of_added.sum(1, keepdims=True) + (np.log2(added.shape[1]) + 2) * units.acc * total
        weights = np.take_along_axis(powers, ids, 1) / total
        error = np.take_along_axis(of_powers, ids, 1) / total + weights * (lost / total + units.acc)
    return {"weights": np.nan_to_num(error, nan=0.0), "ids": np.zeros(ids.shape)}


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


topk_softmax = Definition(_gate_errors, _topk_softmax)
moe_permute = Definition(_exact, _moe_permute)
