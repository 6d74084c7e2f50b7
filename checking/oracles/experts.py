"""Gates, permutations and sums of a mixture of experts, one row at a time: second opinions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Fields = Mapping[str, Any]
Arrays = Mapping[str, Any]


def _topk(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    from scipy.special import softmax

    ids = np.zeros((fields["tokens"], fields["top_k"]), int)
    weights = np.zeros(ids.shape)
    for row, logits in enumerate(arrays["logits"]):
        chosen = sorted(range(logits.size), key=lambda place: -logits[place])[: fields["top_k"]]
        p = softmax(logits)[chosen]
        ids[row], weights[row] = chosen, p / p.sum() if fields["renormalize"] else p
    return {"weights": weights, "ids": ids}


def _permuted(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    experts, ids = fields["experts"], arrays["ids"]
    of = {e: [(t, j) for t, row in enumerate(ids) for j, i in enumerate(row) if i == e] for e in range(experts)}
    lost = [(t, j) for t, row in enumerate(ids) for j, i in enumerate(row) if not 0 <= i < experts]
    order = [slot for slots in of.values() for slot in slots] + lost
    places = np.zeros(np.shape(ids), int)
    for place, slot in enumerate(order):
        places[slot] = place
    rows = np.array([arrays["x"][t] for t, _ in order]).reshape(len(order), fields["width"])
    return {"rows": rows, "places": places, "ends": np.cumsum([len(of[e]) for e in range(experts)], dtype=int)}


def _combined(fields: Fields, arrays: Arrays) -> dict[str, Any]:
    y = np.zeros((fields["tokens"], fields["width"]))
    for to, places, weights in zip(y, arrays["places"], arrays["weights"], strict=True):
        for place, weight in zip(places, weights, strict=True):
            to += weight * arrays["rows"][place] if 0 <= place < fields["permuted"] else 0.0
    return {"y": y}


EXPERTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "torch.topk": _topk,
    "numpy.argsort": _permuted,
    "numpy.take_along_axis": _combined,
}
