"""Groups the kinds of a map op that the same kernels serve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...spec.scope import kinds_of
from .passes import Pass, passes
from .program import place_of
from .spec import MapSpec

Sorts = dict[str, str]


@dataclass(slots=True)
class KindGroup:
    """Kinds whose passes are alike, and these of each; of an op without kinds its own, under ""."""

    shape: Any
    sorts: list[Sorts]
    passes: dict[str, tuple[Pass, ...]] = field(default_factory=dict)

    def takes(self, shape: Any, sorts: list[Sorts]) -> bool:
        """Whether a kind belongs here: in each pass, a name has one sort of value in all kinds."""
        pairs = zip(self.sorts, sorts, strict=False)
        return None is not shape == self.shape and all(a.get(n, s) == s for a, b in pairs for n, s in b.items())


def kind_groups(spec: MapSpec) -> list[KindGroup]:
    """The groups in which kinds share kernels; raises ProgramError.

    Passes are alike that have the same arrays and reduce over the same dims to the same sorts of values, or not at all.
    A kind that reads at computed places is alone.
    """
    groups: list[KindGroup] = []
    for name, of in spec.by_kind.items():
        cut = passes(of)
        sorts = [dict(kinds_of(part.spec, part.parts.lines)) for part in cut]
        shape = tuple(map(_shape, cut, sorts))
        group = next((g for g in groups if g.takes(None if None in shape else shape, sorts)), None)
        if group is None:
            groups.append(group := KindGroup(shape, [{} for _ in cut]))
        for own, others in zip(group.sorts, sorts, strict=True):
            own |= others
        # Other groups may hand over arrays of the same names.
        held = f"{next(iter(group.passes), name)}_held" if name else "held"
        group.passes[name] = passes(of, held)
    return groups


def _shape(of: Pass, sorts: Sorts) -> Any:
    """What a kernel has in common for all kinds of a group; None for what it cannot share."""
    late = of.parts.late & set(of.spec.outputs)
    if of.parts.reads or any(of.spec.outputs[name].optional for name in late):
        return None
    sums = tuple((sorts[x.name], place_of(x.expr) is not None) for x in of.parts.sum_lines)
    tensors = tuple((name, t.dims, t.dtype) for name, t in of.spec.tensors.items())
    return tensors, of.parts.cells, of.parts.summed, sums, late
