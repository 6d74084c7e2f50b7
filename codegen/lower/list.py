"""ListSpec -> ListOp: what all elements share, and the values of each."""

from __future__ import annotations

from dataclasses import dataclass, fields

from baracuda.runtime import ListPlan, Schedule

from ..spec.map_program import split
from ..spec.spec import ListSpec
from ..text import Name
from .map import lower_map
from .map_op import Entry, MapOp
from .op import Tensor, Value

# A block has one chunk of an array, two packs of 16 bytes a thread.
USUAL = Schedule(256, (("packs", 2),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOp(MapOp):
    """An op of the list family: a program for each element of the arrays of some lists."""

    shared: tuple[Value, ...]  # values that are the same for all elements

    @property
    def layout_names(self) -> tuple[str, ...]:
        return ListPlan.LAYOUTS

    @property
    def lists(self) -> tuple[Tensor, ...]:
        """The arguments that are lists of arrays."""
        return tuple(t for t in self.tensors if t.over == "list")

    @property
    def numbers(self) -> tuple[Tensor, ...]:
        """The arguments that are arrays of no axes."""
        return tuple(t for t in self.tensors if t.over != "list")

    @property
    def values(self) -> tuple[Value, ...]:
        """The values of an element, without the shared ones."""
        return tuple(value for value in self.cells.values if value not in self.shared)


def lower_list(spec: ListSpec, spec_path: str) -> ListOp:
    """The decisions for `spec`, which has been checked."""
    op, varying = lower_map(spec, spec_path), split(spec).dims
    kept = {f.name: getattr(op, f.name) for f in fields(op)}
    return ListOp(
        **{**kept, "entries": tuple(Entry(Name(tag), USUAL) for tag in spec.dtypes)},
        shared=tuple(value for value in op.cells.values if not varying[value.name]),
    )
