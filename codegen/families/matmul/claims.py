"""Which files that name no family read like matrix products. The data is the author's and may be malformed anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from baracuda.runtime.families.matmul.schedules import SCHEDULES

from ...spec.family import Data

ELEMENTS = tuple(dict.fromkeys(tag for _, tags, _ in SCHEDULES for tag in tags))
_PRODUCT = re.compile(r"\bsum\(\s*([a-z]\w*)\s*\*\s*([a-z]\w*)\s*,\s*([a-z]\w*)\s*\)")
_REDUCED = re.compile(r"\b(sum|mean|var|std|prod|max|min|any|all|count|argmax|argmin|norm1|norm2|logsumexp)\(")
_PLACE = re.compile(r"\[|\bindex\(")


def reads_like_a_product(data: Data) -> bool:
    """Whether each program sums products of the same two inputs and reduces nothing else, and outputs are over the
    dims of their own and those that they share."""
    programs = [*_programs(data)]
    found = {match.groups() if (match := _PRODUCT.search(text)) else None for text in programs}
    alone = all(len(_REDUCED.findall(text)) == 1 and not _PLACE.search(text) for text in programs)
    if len(found) != 1 or None in found or not alone or not _is_plain(data):
        return False
    ((a, b, depth),) = found  # type: ignore[misc]
    inputs, outputs = _mapping(data, "inputs"), _mapping(data, "outputs")
    if any({"optional", "dtype"} & _mapping(inputs, name).keys() for name in (a, b)):
        return False
    of_a, of_b = ({*_dims(inputs, name)} for name in (a, b))
    both, over = of_a & of_b, (of_a | of_b) - {depth}
    is_product = depth in both and len(of_a - of_b) == len(of_b - of_a) == 1 and len(both) <= 2
    return is_product and all({*_dims(outputs, name)} == over for name in outputs)


def _is_plain(data: Data) -> bool:
    """Whether dims are one axis each, and elements are those that kernels multiply."""
    fields, dims, dtypes = _mapping(data, "descriptor"), _mapping(data, "dims"), data.get("dtypes", [])
    sizes = [dim.get("of") if isinstance(dim, Mapping) else dim for dim in dims.values()]
    shared = any(isinstance(dim, Mapping) and "axes" in dim for dim in dims.values()) or "rest" in sizes
    shapes = {name for name in fields if _mapping(fields, name).get("type", fields[name]) == "shape"}
    known = isinstance(dtypes, list) and all(dtype in ELEMENTS for dtype in dtypes)
    return bool(sizes) and not shared and known and not any(size in shapes for size in sizes if isinstance(size, str))


def _programs(data: Data) -> Iterator[str]:
    """The text of the program, or of each kind."""
    for of in _mapping(data, "kinds").values() or (data.get("program"),):
        text = of.get("program") if isinstance(of, Mapping) else of
        yield text if isinstance(text, str) else ""


def _mapping(data: Mapping[Any, Any], key: object) -> Mapping[Any, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _dims(tensors: Mapping[Any, Any], name: object) -> tuple[str, ...]:
    dims = _mapping(tensors, name).get("dims")
    return tuple(map(str, dims)) if isinstance(dims, list) else ()
