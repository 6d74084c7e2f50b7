"""The usual problems that a program on rows is tested on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...spec.default_conditions import OF_AXIS, OF_MASK
from .spec import RowSpec

# Of the shape that rows and columns share out: odd and even extents, one element, several axes, more than any tile
# holds, nothing.
_SHAPES = ([7, 257], [1, 1], [5, 64], [96], [2, 3, 4, 40], [3, 70000], [0, 16], [4, 0])


def usual_cases(spec: RowSpec) -> Iterator[dict[str, Any]]:
    """The last axis is the columns, but of three or more axes the last but one, or of a mask both."""
    columns = [dim for dim in spec.dims.values() if dim.axes != "rest"]
    axis, mask = (pattern.fullmatch(columns[0].axes) for pattern in (OF_AXIS, OF_MASK))
    for shape in _SHAPES if axis or mask else ():
        rank = len(shape)
        if axis:
            yield {columns[0].of: shape, axis[1]: rank - 2 if rank > 2 else rank - 1}
        elif mask:
            yield {columns[0].of: shape, mask[1]: 0b11 << rank - 2 if rank > 2 else 1 << rank - 1}
