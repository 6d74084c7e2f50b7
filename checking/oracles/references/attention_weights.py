"""Attention weights by their definition, on whole matrices of scores.

A score is scale q k, then softcap tanh(score / softcap), then minus slope |distance|, then plus mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Arrays, Fields


def scores(xp: Any, fields: Fields, arrays: Arrays) -> Any:
    score = fields["scale"] * xp.matmul(arrays["q"], turned(shared(fields, arrays["k"])))
    softcap = fields.get("softcap", 0.0)
    if softcap:
        score = softcap * xp.tanh(score / softcap)
    if "alibi_slopes" in arrays:
        score = score - arrays["alibi_slopes"][:, :, None, None] * np.abs(distance(fields))
    return score + arrays["mask"] if "mask" in arrays else score


def softmax(xp: Any, score: Any, may_see: Any) -> tuple[Any, Any]:
    """Probabilities and lse, the logarithm of their denominator; zeros and -inf for queries that see no key."""
    visible_keys = may_see & (score != -np.inf)
    lowest = np.full((*score.shape[:-1], 1), -np.inf, score.dtype)
    largest = xp.max(xp.concatenate([xp.where(visible_keys, score, -np.inf), lowest], axis=-1), axis=-1, keepdims=True)
    some = largest != -np.inf
    base = xp.where(some, largest, 0.0)
    power = xp.where(visible_keys, xp.exp(xp.where(visible_keys, score - base, 0.0)), 0.0)
    total = xp.where(some, xp.sum(power, axis=-1, keepdims=True), 1.0)
    return power / total, xp.where(some, base + xp.log(total), -np.inf)[..., 0]


def shared(fields: Fields, x: Any) -> Any:
    """Keys or values, repeated for each query head."""
    group = fields["num_heads"] // max(1, fields["num_kv_heads"])
    return x[:, np.arange(fields["num_heads"]) // max(1, group)]


def distance(fields: Fields) -> Any:
    """The distance from each query's position to each key, positive for later keys."""
    shift = fields["key_len"] - fields["query_len"] if fields["bottom_right"] else 0
    return np.arange(fields["key_len"]) - np.arange(fields["query_len"])[:, None] - shift


def visible(fields: Fields) -> Any:
    """Which keys a query may see; causal excludes later ones whatever the window."""
    left, right = fields.get("window_left", -1), 0 if fields["is_causal"] else fields.get("window_right", -1)
    after = distance(fields)
    visible_keys = np.ones_like(after, dtype=bool)
    if left >= 0:
        visible_keys &= after >= -left
    if right >= 0:
        visible_keys &= after <= right
    return visible_keys


def turned(x: Any) -> Any:
    return x.swapaxes(-1, -2)
