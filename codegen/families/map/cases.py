"""The usual problems that a program over an index space is tested on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from ...spec.default_conditions import OF_AXIS, OF_MASK
from ...spec.parts import Drawn, RangeSpec
from .spec import MapSpec

# Of an index space: odd and even extents, one element, several axes, more than any tile holds, nothing.
_SHAPES = ([3, 50], [1], [2, 1, 33], [4, 16], [2, 3, 2, 3, 2, 3, 7], [20000], [0, 16])
_SMALL = (2, 3, 5, 2, 3, 2, 2, 2)


def usual_cases(spec: MapSpec) -> Iterator[dict[str, Any]]:
    """Of several shapes all but the first are small ones of its rank."""
    shapes, sizes = _extent_fields(spec)
    extents = [*_extents(len(sizes))] if sizes else [[]]
    for turn, shape in enumerate(_SHAPES if shapes else extents):
        small = [list(islice(cycle(_SMALL), i, i + len(shape))) for i in range(1, len(shapes))]
        case = dict(zip(shapes, [shape, *small], strict=False)) | _axes(spec, len(shape), turn)
        yield case | dict(zip(sizes, extents[turn % len(extents)], strict=True))


def _axes(spec: MapSpec, rank: int, turn: int) -> dict[str, Any]:
    """Axes that dims share out by a mask or a field: the last, the first, those between, all, every other, none."""
    for dim in spec.dims.values():
        axis, mask = (pattern.fullmatch(dim.axes or "") for pattern in (OF_AXIS, OF_MASK))
        if axis:
            return {axis[1]: turn % rank}
        if mask:
            all_axes = 2**rank - 1
            between = (all_axes & ~1 & ~(1 << rank - 1)) or 1
            masks = 1 << rank - 1, 1, between, 0, 0b01010101 & all_axes, all_axes, 1
            return {mask[1]: masks[turn % len(masks)]}
    return {}


def _extent_fields(spec: MapSpec) -> tuple[list[str], list[str]]:
    """The shapes and the ints that dims run along."""
    of = dict.fromkeys(dim.of for dim in spec.dims.values() if dim.of in spec.descriptor)
    shapes, sizes = ([n for n in of if spec.descriptor[n].type == kind] for kind in ("shape", "int"))
    return shapes, sizes


def _extents(count: int) -> Iterator[list[int]]:
    """For so many dims of one axis each."""
    small = list(islice(cycle((2, 3, 5, 4)), count - 1))
    ones, twos = [1] * (count - 1), [2] * (count - 1)
    yield from ([*small, 33], [1, *ones], [*small, 16], [*ones, 300], [200, *twos], [0, *twos])
    if count > 1:
        yield [*twos, 0]


def usual_draw(spec: MapSpec) -> dict[str, Drawn]:
    """How random problems are drawn."""
    shapes, sizes = _extent_fields(spec)
    draw: dict[str, Drawn] = {n: RangeSpec(low=0, high=70 if n in sizes[-2:] else 12) for n in sizes}
    masks = [match[1] for dim in spec.dims.values() if (match := OF_MASK.fullmatch(dim.axes or ""))]
    draw |= {mask: RangeSpec(low=0, high=15) for mask in masks}
    if len(shapes) == 1:
        return draw | {shapes[0]: RangeSpec(low=0, high=40, rank=(1, 4))}
    return draw | {n: RangeSpec(low=int(i > 0), high=4 if i else 12, rank=(3, 3)) for i, n in enumerate(shapes)}
