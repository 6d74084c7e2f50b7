"""Which fields of the descriptor follow from the shapes of inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from baracuda.runtime import Extent

from ..spec.spec import BodySpec, MapSpec, OpSpec, RowSpec


def extents_of(spec: OpSpec) -> tuple[Extent, ...]:
    """Where each such field follows from; optional inputs count only if no required one determines it."""
    inputs = [name for name in spec.inputs if name in spec.arguments]
    inputs.sort(key=lambda name: bool(spec.inputs[name].optional))
    extents: dict[str, list[Extent]] = {field: [] for field in spec.descriptor}
    for name in inputs:
        for extent in _shown(name, spec):
            earlier = extents[extent.field]
            if not earlier or spec.inputs[earlier[0].tensor].optional:
                earlier.append(extent)
    if isinstance(spec, MapSpec):
        for name in inputs:
            for extent in _factors(name, spec, {field for field, earlier in extents.items() if earlier}):
                if not any(e.by for field in (extent.field, *extent.by) for e in extents[field]):
                    extents[extent.field].append(extent)
    return tuple(extent for earlier in extents.values() for extent in earlier)


def _shown(name: str, spec: OpSpec) -> Iterator[Extent]:
    if isinstance(spec, RowSpec):
        if set(spec.inputs[name].dims) == set(spec.dims):
            yield Extent(next(iter(spec.dims.values())).of, name)
    elif isinstance(spec, MapSpec):
        yield from _along(name, spec)
    elif isinstance(spec, BodySpec):
        yield from _written(name, spec.inputs[name].shape)


def _along(name: str, spec: MapSpec) -> Iterator[Extent]:
    """Fields that are the extent of one axis; those in a product cannot be told apart."""
    groups = spec.inputs[name].groups
    shared = {(dim,): of.of for dim, of in spec.dims.items() if of.axes}
    if shared and set(groups) == set(shared):
        yield Extent(next(iter(shared.values())), name)
    if any(group in shared for group in groups):
        return
    shapes = [place for place, (dim, *_) in enumerate(groups) if _is_shape(dim, spec)]
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


def _is_shape(dim: str, spec: MapSpec) -> bool:
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


def _factors(name: str, spec: MapSpec, known: set[str]) -> Iterator[Extent]:
    """Of a product of ints, the last field that no other input shows, if the caller says the rest."""
    groups = spec.inputs[name].groups
    shapes = [place for place, (dim, *_) in enumerate(groups) if _is_shape(dim, spec)]
    if any(spec.dims[dim].axes for group in groups for dim in group):
        return
    for place, dims in enumerate(groups):
        fields, axis = [spec.dims[dim].of for dim in dims], _axis(place, len(groups), shapes)
        unknown = [field for field in fields if field not in known and field in spec.descriptor]
        if len(dims) > 1 and axis is not None and place not in shapes and unknown and {*fields} <= {*spec.descriptor}:
            *_, field = unknown
            yield Extent(field, name, axis, by=tuple(other for other in fields if other != field))


def _written(name: str, shape: str) -> Iterator[Extent]:
    """Fields that a tuple-valued shape has alone or plus or minus a number."""
    tree = ast.parse(shape.strip(), mode="eval").body
    for axis, part in enumerate(tree.elts if isinstance(tree, ast.Tuple) else ()):
        match part:
            case ast.Name(id=field):
                yield Extent(field, name, axis)
            case ast.BinOp(ast.Name(id=field), ast.Add(), ast.Constant(value=int(surplus))):
                yield Extent(field, name, axis, less=surplus)
            case ast.BinOp(ast.Name(id=field), ast.Sub(), ast.Constant(value=int(surplus))):
                yield Extent(field, name, axis, less=-surplus)
