"""Which fields of the descriptor follow from the shapes of inputs."""

from __future__ import annotations

from baracuda.runtime import Extent

from ..spec.family import family_of
from ..spec.spec import OpSpec


def extents_of(spec: OpSpec) -> tuple[Extent, ...]:
    """Where each such field follows from; optional inputs count only if no required one determines it."""
    family = family_of(spec)
    inputs = [name for name in spec.inputs if name in spec.arguments]
    inputs.sort(key=lambda name: bool(spec.inputs[name].optional))
    extents: dict[str, list[Extent]] = {field: [] for field in spec.descriptor}
    for name in inputs:
        for extent in family.shown(spec, name):
            earlier = extents[extent.field]
            if not earlier or spec.inputs[earlier[0].tensor].optional:
                earlier.append(extent)
    for name in inputs:
        for extent in family.factors(spec, name, {field for field, earlier in extents.items() if earlier}):
            if not any(e.by for field in (extent.field, *extent.by) for e in extents[field]):
                extents[extent.field].append(extent)
    return tuple(extent for earlier in extents.values() for extent in earlier)
