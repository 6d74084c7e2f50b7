"""The model of the matmul family."""

from __future__ import annotations

from dataclasses import dataclass

from baracuda.runtime import MatmulPlan
from baracuda.runtime.families.matmul.schedules import BYTES

from ...text import Name
from ..map.op import Body, MapOp


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulOp(MapOp):
    """An op of the matmul family: a product of two arrays, and a program on each of its elements.

    One of several passes has products and maps as its passes, and no factors of its own.
    """

    factors: tuple[Name, ...]
    chunks: tuple[tuple[Name, str], ...]  # the dim that passes take in chunks -> how much of it at once
    roles: tuple[tuple[str, Name], ...]  # "batch", "rows", "columns", "depth" -> dim
    span: tuple[Name, Name, bool] | None  # where parts end, of what, and whether they follow each other

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
        return (self.cells, self.epilogue) if self.made else (self.epilogue,)
