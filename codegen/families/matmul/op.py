"""The model of the matmul family."""

from __future__ import annotations

from dataclasses import dataclass, replace

from baracuda.runtime import MatmulPlan
from baracuda.runtime.families.matmul.schedules import BYTES

from ...text import Code, Name
from ..map.op import Body, MapOp

_BANDS = "3"  # when bands are reduced


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulOp(MapOp):
    """An op of the matmul family: a product of two arrays, and a program on each of its elements.

    One of several passes has products and maps as its passes, and no factors of its own.
    """

    factors: tuple[Name, ...]
    second: Name | None  # another right factor
    chunks: tuple[tuple[Name, str], ...]  # the dim that passes take in chunks -> how much of it at once
    roles: tuple[tuple[str, Name], ...]  # "batch", "rows", "columns", "depth" -> dim
    span: tuple[Name, Name, bool] | None  # where parts end, of what, and whether they follow each other
    # What parts of the depth are multiplied with: along each axis a role, and how many places of it share an element.
    weights: tuple[tuple[Name, tuple[tuple[str, int], ...]], ...]
    part: Name | None  # the dim of parts of the columns that the kernel reduces
    band: Name | None  # that of bands of the rows
    sinks: tuple[Body, ...]  # elements with the terms of these reductions, the terms of what rests on them, and bands
    banded: tuple[Name, ...]  # the slots of reductions of bands

    @property
    def layout_names(self) -> tuple[str, ...]:
        if self.passes:
            return MatmulPlan.LAYOUTS_OF_PASSES
        of_bytes = {dtype for t in self.tensors if t.name in self.factors for dtype in t.dtypes} <= {*BYTES}
        return MatmulPlan.LAYOUTS_OF_BYTES if of_bytes or {*self.elements} <= {*BYTES} else MatmulPlan.LAYOUTS

    @property
    def walks(self) -> Name:
        return Name("matrix")

    def folder_of(self, of: MapOp) -> Name:
        return of.walks

    @property
    def bodies(self) -> tuple[Body, ...]:
        weights = (replace(self.terms, name=Name("weights")),) if self.weights else ()
        return (*weights, *self.sinks, *(() if self.band and not self.part else (self.epilogue,)))

    @property
    def phases(self) -> Code:
        """For each sum, the last one first, when it is reduced: 0 is the product; empty without any others."""
        of = {part.slot: str(phase) for phase, body in enumerate(self.sinks, 1) for part in body.sums}
        of |= dict.fromkeys(self.banded, _BANDS)
        return Code("".join([of.get(part.slot, "0") for part in reversed(self.sums)]) if self.sinks else "")

    @property
    def column_phases(self) -> int:
        """How many of them reduce columns."""
        return sum(body.name in ("sinks", "late_sinks") for body in self.sinks) if self.part else 0
