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
    for axis, (dim, *others) in enumerate(groups):
        field = spec.dims[dim].of
        if field not in spec.descriptor:  # computed from fields, which it does not show
            continue
        is_shape = spec.descriptor[field].type == "shape"
        if not others and (not is_shape or len(groups) == 1):
            yield Extent(field, name, None if is_shape else axis)
        if is_shape:  # of a rank that only the descriptor knows
            return


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
