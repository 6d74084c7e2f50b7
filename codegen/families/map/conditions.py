"""The conditions that hold for every map without being said."""

from __future__ import annotations

from collections.abc import Iterator

from baracuda.runtime.families.map.geometry import MAX_AXES

from ...spec.default_conditions import LARGEST_RANK, OF_MASK, of_axis
from ...spec.parts import Requirement
from .spec import MapSpec


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
