"""Which fields of the descriptor follow from the shapes of a map's inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from baracuda.runtime import Extent

from .spec import MapSpec


def shown(spec: MapSpec, name: str) -> Iterator[Extent]:
    """Fields that are the extent of one axis; those in a product cannot be told apart."""
    groups = spec.inputs[name].groups
    shared = {(dim,): of.of for dim, of in spec.dims.items() if of.axes}
    if shared and set(groups) == set(shared):
        yield Extent(next(iter(shared.values())), name)
    if any(group in shared for group in groups):
        return
    shapes = [place for place, (dim, *_) in enumerate(groups) if is_shape(dim, spec)]
    for place, (dim, *others) in enumerate(groups):
        if others:
            continue
        if place in shapes and len(shapes) == 1:
            behind = len(groups) - place - 1
            yield Extent(spec.dims[dim].of, name) if len(groups) == 1 else Extent(
                spec.dims[dim].of, name, place, behind=behind
            )
        elif place not in shapes and (axis := _axis(place, len(groups), shapes)) is not None:
            yield from _linear(spec.dims[dim].of, name, axis, spec)


def is_shape(dim: str, spec: MapSpec) -> bool:
    field = spec.descriptor.get(spec.dims[dim].of)
    return field is not None and field.type == "shape"


def _axis(place: int, count: int, shapes: list[int]) -> int | None:
    """The axis of an int's dim, from the end where a shape comes before; between two shapes only they know."""
    if not shapes or place < shapes[0]:
        return place
    return place - count if place > shapes[-1] else None


def _linear(of: str, name: str, axis: int, spec: MapSpec) -> Iterator[Extent]:
    """A field, or one times a number, as `half * 2`; of other computed extents nothing follows."""
    match ast.parse(of, mode="eval").body:
        case ast.Name(id=field) if field in spec.descriptor:
            yield Extent(field, name, axis)
        case ast.BinOp(ast.Name(id=field), ast.Mult(), ast.Constant(value=int(times))) if times > 0:
            yield Extent(field, name, axis, times=times)
        case ast.BinOp(ast.Constant(value=int(times)), ast.Mult(), ast.Name(id=field)) if times > 0:
            yield Extent(field, name, axis, times=times)


def factors(spec: MapSpec, name: str, known: set[str]) -> Iterator[Extent]:
    """Of a product of ints, the last field that no other input shows, if the caller says the rest."""
    groups = spec.inputs[name].groups
    shapes = [place for place, (dim, *_) in enumerate(groups) if is_shape(dim, spec)]
    if any(spec.dims[dim].axes for group in groups for dim in group):
        return
    for place, dims in enumerate(groups):
        fields, axis = [spec.dims[dim].of for dim in dims], _axis(place, len(groups), shapes)
        unknown = [field for field in fields if field not in known and field in spec.descriptor]
        if len(dims) > 1 and axis is not None and place not in shapes and unknown and {*fields} <= {*spec.descriptor}:
            *_, field = unknown
            yield Extent(field, name, axis, by=tuple(other for other in fields if other != field))
