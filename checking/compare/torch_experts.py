"""Products of groups and the parts of a mixture of experts in torch, one group at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Fields = Mapping[str, Any]
Tensors = Mapping[str, Any]


def _segments(fields: Fields, tensors: Tensors) -> Iterator[tuple[int, int]]:
    """Where the rows of each group begin and end."""
    begin = 0
    for end in tensors["ends"].tolist():
        yield begin, (begin := min(max(begin, int(end)), fields["tokens"]))


def _product(torch: Any, fields: Fields, tensors: Tensors, w: str = "w") -> Any:
    """What belongs to no group is 0."""
    x, spans = tensors["x"], list(_segments(fields, tensors))
    parts = [x[begin:end] @ tensors[w][g].T for g, (begin, end) in enumerate(spans)]
    left = fields["tokens"] - (spans[-1][1] if spans else 0)
    return torch.cat([*parts, torch.zeros(left, fields["out_features"], dtype=x.dtype)])


def _grouped_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    return {"y": _product(torch, fields, tensors)}


def _k_grouped_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    a, b = tensors["a"], tensors["b"]
    empty = [torch.zeros(0, fields["rows"], fields["columns"], dtype=a.dtype)]  # of no groups
    parts = [(a[:, begin:end] @ b[begin:end])[None] for begin, end in _segments(fields, tensors)]
    return {"y": torch.cat(empty + parts)}


def _grouped_block_scaled_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    depth, columns = fields["in_features"], fields["out_features"]
    of_rows = tensors["scale_x"].repeat_interleave(128, 1)[:, :depth]
    of_blocks = tensors["scale_w"].repeat_interleave(128, 1).repeat_interleave(128, 2)[:, :columns, :depth]
    scaled = {"x": tensors["x"].double() * of_rows, "w": tensors["w"].double() * of_blocks, "ends": tensors["ends"]}
    return {"y": _product(torch, fields, scaled)}


def _grouped_swiglu(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    gate, up = (_product(torch, fields, tensors, name) for name in ("w_gate", "w_up"))
    return {"y": torch.nn.functional.silu(gate) * up}


def _masked_mm(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    inside = torch.arange(fields["capacity"])[None, :, None] < tensors["counts"][:, None, None]
    x = torch.where(inside, tensors["x"], 0.0)
    return {"y": x @ tensors["w"].mT}


def _topk_softmax(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    logits = tensors["logits"]
    ids = torch.sort(logits, dim=1, descending=True, stable=True).indices[:, : fields["top_k"]]
    few = fields["renormalize"]  # the softmax of those alone, whose slopes are 0 where there is one
    weights = torch.softmax(logits.gather(1, ids), 1) if few else torch.softmax(logits, 1).gather(1, ids)
    return {"weights": weights, "ids": ids.int()}


def _moe_permute(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    ids, experts = tensors["ids"].long(), fields["experts"]
    keys = torch.where((ids < 0) | (ids >= experts), experts, ids).flatten()
    order = torch.argsort(keys, stable=True)
    places = torch.argsort(order).reshape(ids.shape)
    ends = torch.bincount(keys, minlength=experts + 1)[:experts].cumsum(0)
    return {"rows": tensors["x"][order // max(fields["top_k"], 1)], "places": places.int(), "ends": ends.int()}


def _moe_combine(torch: Any, fields: Fields, tensors: Tensors) -> dict[str, Any]:
    places, rows = tensors["places"].long(), tensors["rows"]
    inside = (places >= 0) & (places < fields["permuted"])
    padded = torch.cat([rows, torch.zeros(1, fields["width"], dtype=rows.dtype)])
    read = padded[torch.where(inside, places, fields["permuted"])]
    return {"y": (tensors["weights"][..., None] * read).sum(1)}


FORWARD: dict[str, Callable[[Any, Fields, Tensors], dict[str, Any]]] = {
    "grouped_mm": _grouped_mm,
    "k_grouped_mm": _k_grouped_mm,
    "grouped_swiglu": _grouped_swiglu,
    "grouped_block_scaled_mm": _grouped_block_scaled_mm,
    "masked_mm": _masked_mm,
    "topk_softmax": _topk_softmax,
    "moe_permute": _moe_permute,
    "moe_combine": _moe_combine,
}
