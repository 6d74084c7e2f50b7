"""ListSpec -> ListOp."""

from __future__ import annotations

from dataclasses import dataclass, fields

from baracuda.runtime import ListPlan, Schedule

from ...text import Name
from ..map.lower import lower_map
from ..map.op import Entry, MapOp
from .spec import ListSpec

# A block has one chunk of an array, two packs of 16 bytes a thread. Reductions are of a fixed number of blocks, 4 for
# each of the 132 multiprocessors of an H200.
USUAL = Schedule(256, (("packs", 2),))
SUMS = Schedule(256, (("packs", 2), ("blocks", 528)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOp(MapOp):
    """An op of the list family: a program for each element of the arrays of some lists."""

    @property
    def layout_names(self) -> tuple[str, ...]:
        return ListPlan.LAYOUTS

    @property
    def walks(self) -> Name:
        return Name("list")


def lower_list(spec: ListSpec, spec_path: str) -> ListOp:
    """The decisions for `spec`, which has been checked."""
    op = lower_map(spec, spec_path)
    schedule = SUMS if op.passes or op.sums else USUAL
    kept = {f.name: getattr(op, f.name) for f in fields(op)}
    kept["entries"] = tuple(Entry(Name(tag), schedule) for tag in spec.dtypes)
    return ListOp(**kept)
