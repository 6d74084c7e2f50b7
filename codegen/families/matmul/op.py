"""The model of the matmul family."""

from __future__ import annotations

from dataclasses import dataclass

from baracuda.runtime import MatmulPlan

from ...text import Name
from ..map.op import Body, MapOp


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulOp(MapOp):
    """An op of the matmul family: a product of two arrays, and a program on each of its elements."""

    factors: tuple[Name, Name]
    roles: tuple[tuple[str, Name], ...]  # "batch", "rows", "columns", "depth" -> dim

    @property
    def layout_names(self) -> tuple[str, ...]:
        return MatmulPlan.LAYOUTS

    @property
    def walks(self) -> Name:
        return Name("matrix")

    @property
    def bodies(self) -> tuple[Body, ...]:
        return (self.epilogue,)
