"""The conditions that hold for every spec: ranks, axes in range, extents, finite numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from baracuda.runtime.families.map.geometry import MAX_AXES

from ..conditions.kinds import OF_FIELD, WORD, Kind, kind_of
from .spec import BodySpec, MapSpec, OpSpec, Requirement, RowSpec

_LARGEST_RANK = 8
_TERM = r"(\w+|(?:len|min)\([\w, ]+\))"
_BOUNDED = re.compile(rf"-?[\d.]+ <=? {_TERM}(?= <|$)")  # 2 <= width <= 8
_AT_LEAST = re.compile(rf"{_TERM} (?:>=? -?[\d.]+(?= and |$)|== )")  # min(a, b) >= 0
EXTENT = Kind("int", 0, WORD.high)
OF_AXIS = re.compile(r"\(normalize_axis\((\w+), len\((\w+)\)\),\)")
OF_MASK = re.compile(r"mask_axes\((\w+), len\((\w+)\)\)")


def implied(spec: OpSpec) -> list[Requirement]:
    """What goes without saying, but for what the spec's own conditions say more of."""
    own = [" ".join(requirement.that.split()) for requirement in spec.require]
    said = {bounded for text in own for bounded in _bounded(text)}
    conditions = [*_of_shapes(spec, said), *_of_sizes(spec, said)]
    for name, field in spec.descriptor.items():
        asked = name in said or any(f"isfinite({name})" in text for text in own)
        if field.type == "float" and field.finite and not asked:
            conditions.append(Requirement(that=f"isfinite({name})"))
    return conditions


def _bounded(condition: str) -> Iterator[str]:
    """What a condition bounds from below, or says to be equal to something: of `min(a, b) >= 0` both."""
    yield condition
    if " or " in condition or " if " in condition:
        return
    if match := _BOUNDED.match(condition) or _AT_LEAST.match(condition):
        yield match[1]
        if match[1].startswith("min("):
            yield from match[1][len("min(") : -1].split(", ")


def _of_shapes(spec: OpSpec, said: set[str]) -> Iterator[Requirement]:
    shapes = [name for name, field in spec.descriptor.items() if field.type == "shape"]
    for name in shapes:
        if f"len({name})" not in said:
            yield Requirement(that=f"1 <= len({name}) <= {_LARGEST_RANK}", raises="Unsupported")
    for dim in spec.dims.values() if isinstance(spec, RowSpec | MapSpec) else ():
        match = OF_AXIS.fullmatch(dim.axes or "")
        if match and (text := f"-len({match[2]}) <= {match[1]} < len({match[2]})") not in said:
            yield Requirement(that=text)
        match = OF_MASK.fullmatch(dim.axes or "")
        if match and isinstance(spec, MapSpec) and (text := f"is_mask({match[1]}, len({match[2]}))") not in said:
            yield Requirement(that=text)
    if isinstance(spec, MapSpec) and (together := _of_all_axes(spec)):
        yield together
    for name in shapes:
        if f"min({name})" not in said:
            yield Requirement(that=f"min({name}) >= 0")


def _of_all_axes(spec: MapSpec) -> Requirement | None:
    """That the axes of several shapes are no more than a kernel has room for, where they could be."""
    shared = [name for name, dim in spec.dims.items() if dim.axes]
    sizes = [dim.of for name, dim in spec.dims.items() if name not in shared[1:]]
    shapes = [of for of in sizes if of in spec.descriptor and spec.descriptor[of].type == "shape"]
    others = len(sizes) - len(shapes)
    if _LARGEST_RANK * len(shapes) + others <= MAX_AXES:
        return None
    ranks = " + ".join(f"len({name})" for name in shapes)
    return Requirement(that=f"{ranks} <= {MAX_AXES - others}", raises="Unsupported")


def _of_sizes(spec: OpSpec, said: set[str]) -> Iterator[Requirement]:
    """Fields that are extents by themselves: of dims, or of the arrays of a body."""
    named = {dim.of for dim in spec.dims.values()} if isinstance(spec, MapSpec) else set()
    if isinstance(spec, BodySpec):
        shapes = [tensor.shape for tensor in spec.tensors.values()]
        named = {part.strip() for shape in shapes for part in shape.strip("() ").split(",")}
    sizes = [n for n, f in spec.descriptor.items() if f.type == "int" and n in named and n not in said]
    if sizes:
        yield Requirement(that=f"min({', '.join(sizes)}) >= 0" if len(sizes) > 1 else f"{sizes[0]} >= 0")
    at_least = r"\d+ <=? {0}\b|{0} >=? \d|min\([\w, ]*\b{0}\b[\w, ]*\) >=? \d"
    natural = {*sizes, *(n for n in said for text in said if n.isidentifier() and re.match(at_least.format(n), text))}
    fields = {n: f.type for n, f in spec.descriptor.items() if f.type in OF_FIELD}
    extents = {n: EXTENT if n in natural else OF_FIELD[of] for n, of in fields.items()}
    for text in sorted(named - {*spec.descriptor}) if isinstance(spec, MapSpec) else ():
        if f"{text} >= 0" not in said and kind_of(text, extents).low < 0:
            yield Requirement(that=f"{text} >= 0")
