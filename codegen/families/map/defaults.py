"""What a map leaves out: conditions that hold for every one, and the usual problems that it is tested on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from baracuda.runtime.families.map.geometry import MAX_AXES

from ...spec.default_conditions import LARGEST_RANK, OF_AXIS, OF_MASK, of_axis
from ...spec.parts import Drawn, RangeSpec, Requirement
from .spec import MapSpec

# Of an index space: odd and even extents, one element, several axes, more than any tile holds, nothing.
_SHAPES = ([3, 50], [1], [2, 1, 33], [4, 16], [2, 3, 2, 3, 2, 3, 7], [20000], [0, 16])
_SMALL = (2, 3, 5, 2, 3, 2, 2, 2)


def conditions(spec: MapSpec, said: set[str]) -> Iterator[Requirement]:
    """That axes and masks are those of their shapes, and fit the axes that a kernel has room for."""
    for dim in spec.dims.values():
        yield from of_axis(dim, said)
        match = OF_MASK.fullmatch(dim.axes or "")
        if match and (text := f"is_mask({match[1]}, len({match[2]}))") not in said:
            yield Requirement(that=text)
    if together := _of_all_axes(spec):
        yield together


def _of_all_axes(spec: MapSpec) -> Requirement | None:
    """That the axes of several shapes are no more than a kernel has room for, where they could be."""
    shared = [name for name, dim in spec.dims.items() if dim.axes]
    sizes = [dim.of for name, dim in spec.dims.items() if name not in shared[1:]]
    shapes = [of for of in sizes if of in spec.descriptor and spec.descriptor[of].type == "shape"]
    others = len(sizes) - len(shapes)
    if LARGEST_RANK * len(shapes) + others <= MAX_AXES:
        return None
    ranks = " + ".join(f"len({name})" for name in shapes)
    return Requirement(that=f"{ranks} <= {MAX_AXES - others}", raises="Unsupported")


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
