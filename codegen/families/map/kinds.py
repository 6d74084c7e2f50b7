"""Groups the kinds of a map op that the same kernels serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...program import Expr
from ...program.tree import place_of
from ...spec.scope import kinds_of
from .passes import Pass, passes
from .spec import MapSpec

Sorts = dict[str, str]
Cutter = Callable[..., tuple[Pass, ...]]  # as `passes`


@dataclass(slots=True)
class KindGroup:
    """Kinds whose passes are alike, and these of each; of an op without kinds its own, under ""."""

    shape: Any
    sorts: list[Sorts]
    passes: dict[str, tuple[Pass, ...]] = field(default_factory=dict)

    def takes(self, shape: Any, sorts: list[Sorts]) -> bool:
        """Whether a kind belongs here: in each pass, a name has one sort of value in all kinds."""
        pairs = zip(self.sorts, sorts, strict=False)
        return bool(shape == self.shape) and all(a.get(n, s) == s for a, b in pairs for n, s in b.items())


def kind_groups(spec: MapSpec, passes: Cutter = passes) -> list[KindGroup]:
    """The groups in which kinds share kernels; raises ProgramError.

    Passes are alike that have the same arrays and reduce over the same dims to the same sorts of values, or not at all.
    Those that read at computed places, or reduce to an array that may be absent, are if they compute the same.
    """
    groups: list[KindGroup] = []
    for name, of in spec.by_kind.items():
        cut = passes(of)
        sorts = [dict(kinds_of(part.spec, part.parts.lines)) for part in cut]
        shape = tuple(map(_shape, cut, sorts))
        group = next((g for g in groups if g.takes(shape, sorts)), None)
        if group is None:
            groups.append(group := KindGroup(shape, [{} for _ in cut]))
        for own, others in zip(group.sorts, sorts, strict=True):
            own |= others
        # Other groups may hand over arrays of the same names.
        held = f"{next(iter(group.passes), name)}_held" if name else "held"
        group.passes[name] = passes(of, held)
    return groups


def computed(of: Pass) -> tuple[tuple[str, Expr], ...]:
    """The program of a pass, wherever it is written."""
    return tuple((line.name, line.expr) for line in of.parts.lines)


def _shape(of: Pass, sorts: Sorts) -> Any:
    """What a kernel has in common for all kinds of a group."""
    late = of.parts.late & set(of.spec.outputs)
    is_one = bool(of.parts.reads) or any(of.spec.outputs[name].optional for name in late)
    sums = tuple((sorts[x.name], place_of(x.expr) is not None) for x in of.parts.sum_lines)
    tensors = tuple((name, t.dims, t.dtype) for name, t in of.spec.tensors.items())
    return tensors, of.parts.cells, of.parts.summed, sums, late, of.product, of.loop, is_one and computed(of)
