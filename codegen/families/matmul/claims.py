"""Which files that name no family read like matrix products. The data is the author's and may be malformed anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from baracuda.runtime.families.matmul.schedules import SCHEDULES

from ...spec.family import Data

ELEMENTS = tuple(dict.fromkeys(tag for _, tags, _ in SCHEDULES for tag in tags))
_PRODUCT = re.compile(r"\bsum\(\s*([a-z]\w*)\s*\*\s*([a-z]\w*)\s*,\s*([a-z]\w*)\s*\)")
_PLACE = re.compile(r"\[|\bindex\(")


def reads_like_a_product(data: Data) -> bool:
    """Whether each program sums products of two inputs that a matrix product multiplies, and reads no computed places."""
    programs, inputs = [*_programs(data)], _mapping(data, "inputs")
    return _is_plain(data) and all(
        not _PLACE.search(text) and any(_is_product(inputs, *match.groups()) for match in _PRODUCT.finditer(text))
        for text in programs
    )


def _is_product(inputs: Mapping[Any, Any], a: str, b: str, depth: str) -> bool:
    """Whether each factor has one dim of its own, and they share the depth and perhaps a batch."""
    if any({"optional", "dtype"} & _mapping(inputs, name).keys() for name in (a, b)):
        return False
    of_a, of_b = ({*_dims(inputs, name)} for name in (a, b))
    both = of_a & of_b
    return depth in both and len(of_a - of_b) == len(of_b - of_a) == 1 and len(both) <= 2


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
