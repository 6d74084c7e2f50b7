"""A problem of the row family, with the correspondence between the caller's shapes and [rows, cols]."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any

import numpy as np

from baracuda.codegen.families.row.lower import lower_row
from baracuda.codegen.families.row.spec import RowSpec, RowTensor
from baracuda.codegen.program import Reduce, parse
from baracuda.codegen.program.space import Space
from baracuda.codegen.program.tree import reads
from baracuda.codegen.spec.scope import scope_of
from baracuda.runtime import KernelSku
from baracuda.runtime.families.row.geometry import REDUCE_SLICES, WARP, blocks_for

from .problem import Problem, ProgramProblem
from .row_cases import drawn_rows, edges, on_two_blocks, random_rows, short_rows
from .subject import Subject

_OF_RESCALING = 4


@cache
def _sums_below(subject: Subject) -> bool:
    """Whether kernels sum exponentials of what is below the largest number so far."""
    assert isinstance(subject.spec, RowSpec)
    return any(reduction.largest for reduction in lower_row(subject.spec, "").reductions)


class RowProblem(ProgramProblem, family="row"):
    """A shape whose axes fall into rows and columns."""

    STYLES = ("normal", "below", "spread", "constant", "swamped")
    rows_apart = True
    spec: RowSpec
    random = staticmethod(random_rows)
    drawn_cases = staticmethod(drawn_rows)
    edge_cases = staticmethod(edges)
    short_cases = staticmethod(short_rows)
    in_turns = staticmethod(on_two_blocks)

    @staticmethod
    def path_of(subject: Subject, sku: KernelSku) -> Hashable:
        """Rows within a warp, within a block, or longer."""
        return sku.tile.wide, sku.tile.lanes > WARP

    @staticmethod
    def over(spec: RowSpec, tensor: RowTensor) -> str:
        return "element" if len(tensor.dims) == 2 else "row" if tensor.dims == (spec.rows,) else "col"

    @staticmethod
    def check_plan(subject: Subject) -> None:
        """The column sums of each flag are the optional outputs that are sums without further computation."""
        spec, plan = subject.spec, subject.plan
        assert isinstance(spec, RowSpec)
        lines = parse(spec.program, scope_of(spec))
        used = {name for line in lines for name in reads(line.expr)}
        sums = {line.name for line in lines if isinstance(line.expr, Reduce) and line.expr.kind == "sum"} - used
        flags = (t.optional for n, t in spec.outputs.items() if RowProblem.over(spec, t) == "col" and n in sums)
        expected, got = Counter(filter(None, flags)), Counter(flag for flag in plan.COLUMN_SUMS if flag)
        if expected != got:
            needs = f"must have {dict(expected)} of each flag, got {dict(got)}"
            raise AssertionError(f"{plan.__name__}.COLUMN_SUMS {needs}")

    @property
    def turns_once(self) -> bool:
        tile = self.plan.sku.tile
        return not tile.blocks or bool(self.rows <= tile.rows * tile.blocks)

    def planned_anew(self) -> Any:
        """With the same blocks, whose number plans do not remember."""
        return self.plan._served_by(self.plan._row)

    def far_alone(self, name: str, axes: list[int]) -> list[int]:
        """Every axis, of tensors with a value for each element."""
        return axes if self.shape_of(name) == self.shape else []

    def _set_axes(self) -> None:
        self.shape = tuple(getattr(self.descriptor, self.descriptor._shape))
        self.col_axes = tuple(sorted(self.descriptor.col_axes))
        self.row_axes = tuple(a for a in range(len(self.shape)) if a not in self.col_axes)
        self.rows = math.prod(self.shape[a] for a in self.row_axes)
        self.cols = math.prod(self.shape[a] for a in self.col_axes)
        self.row_dim = self.spec.rows
        self.col_dim = next(n for n in self.spec.dims if n != self.row_dim)

    @property
    def size(self) -> int:
        """Rows times columns."""
        return int(self.rows * self.cols)

    @property
    def several(self) -> bool:
        """Whether there are several rows and columns."""
        return bool(self.rows > 1 and self.cols > 1)

    @property
    def space(self) -> Space:
        extents = {d: self.rows if d == self.row_dim else self.cols for d in self.spec.dims}
        return Space(extents, self._optional)

    def flat(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`array` with one axis per dim of the spec, extent 1 where the tensor does not vary."""
        dims = self.spec.tensors[name].dims
        extents = self.space.shape(dims)
        if set(dims) == set(self.spec.dims):
            array = array.transpose([*self.row_axes, *self.col_axes])
            if next(iter(self.spec.dims)) == self.col_dim:
                return array.reshape(self.rows, self.cols).T
        return array.reshape(extents)

    def caller(self, name: str, array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The reverse of `flat`."""
        dims = self.spec.tensors[name].dims
        array = np.broadcast_to(array, self.space.shape(dims))
        if set(dims) != set(self.spec.dims):
            return array.reshape(shape)
        if next(iter(self.spec.dims)) == self.col_dim:
            array = array.T
        order = [*self.row_axes, *self.col_axes]
        unflat = array.reshape([self.shape[a] for a in order])
        return unflat.transpose(np.argsort(order))

    def _hidden_shape(self, name: str) -> tuple[int, ...]:
        forward = self.forward
        assert isinstance(forward, RowSpec)
        same = dict(zip(forward.dims, self.spec.dims, strict=True))
        return self.space.shape(tuple(same[d] for d in forward.inputs[name].dims))

    @classmethod
    def limits(cls, subject: Subject) -> tuple[str, ...]:
        """Columns that a tile holds and packs; rows of a block, and of all blocks at once."""
        tile = "cols < columns", "cols < pack", "rows < tile_rows", "rows < tile_rows * blocks"
        return (*super().limits(subject), *tile)

    def numbers(self, descriptor: Any, sku: KernelSku) -> Mapping[str, Any]:
        shape, itemsize = getattr(descriptor, descriptor._shape), sku.element.row.bytes
        cols = math.prod(shape[axis] for axis in descriptor.col_axes)
        rows = math.prod(n for axis, n in enumerate(shape) if axis not in descriptor.col_axes)
        tile = {"columns": sku.tile.columns(itemsize), "tile_rows": sku.tile.rows, "blocks": sku.tile.blocks}
        return {**vars(descriptor), **tile, "rows": rows, "cols": cols, "pack": 16 // itemsize}

    @property
    def batch(self) -> int | None:
        """The extent of the first of the rows' axes."""
        return self.shape[self.row_axes[0]] if self.row_axes else None

    def with_batch(self, count: int) -> Problem:
        """The same problem with another extent of the first of the rows' axes."""
        shape = [count if a == self.row_axes[0] else n for a, n in enumerate(self.shape)]
        case = {**self.values, self.descriptor._shape: shape}
        return self.of_case(case)

    def _drawn(self, rng: np.random.Generator, style: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if style not in ("swamped", "sparse"):
            return super()._drawn(rng, style, shape)
        if shape != self.shape:
            return rng.uniform(1.0, 2.0, shape)
        unflat = self._patterned(style).reshape([self.shape[a] for a in (*self.row_axes, *self.col_axes)])
        return unflat.transpose(np.argsort([*self.row_axes, *self.col_axes]))

    def _patterned(self, style: str) -> np.ndarray[Any, Any]:
        """Rows of zeros, every other with one number that is not; or "swamped", the worst a sum can do: ones followed
        by numbers (or, in odd rows, squares) that each addition just loses.
        """
        col, row = np.arange(self.cols), np.arange(self.rows)[:, None]
        if style == "sparse":
            return np.where((row % 2 == 1) & (col == row % max(1, self.cols)), 1.5, 0.0)
        tile, vec = self.plan.sku.tile, 16 // self.element.row.bytes
        lost = self.element.row.acc.row.unit_roundoff
        return np.where((col < tile.lanes * vec) & (col % vec == 0), 1.0, np.where(row % 2, lost**0.5, lost))

    def depth(self, dims: tuple[str, ...], count: int) -> float:
        """See row.cuh for the order."""
        return self._along_row(count) if dims == (self.col_dim,) else self._down_column(count)

    def _along_row(self, count: int) -> int:
        tile, vec = self.plan.sku.tile, 16 // self.element.row.bytes
        packs = -(-count // (tile.lanes * tile.cluster * vec))
        parts = [tile.lanes // WARP, tile.cluster]  # warps of a block, blocks of a row
        of_lanes = packs * vec - 1 + min(tile.lanes, WARP).bit_length() - 1
        if not _sums_below(self.subject):
            return int(of_lanes + sum(max(0, n - 1) for n in parts))
        # Each time what is summed is rescaled to a larger number, an exponential and a product round.
        tiles = -(-packs // tile.chunks) if tile.wide else 0
        rescaled = tiles + 1 + sum(n > 1 for n in parts)
        return int(of_lanes + sum(max(1, n).bit_length() - 1 for n in parts) + _OF_RESCALING * rescaled)

    def _down_column(self, count: int) -> int:
        tile = self.plan.sku.tile
        blocks = blocks_for(count, tile)
        slices = 1 if tile.wide else REDUCE_SLICES
        butterfly = 32 // min(32, tile.lanes)  # rows that share a warp
        of_block = butterfly.bit_length() - 1 + tile.rows // butterfly - 1
        return int(-(-count // (blocks * tile.rows)) + of_block + -(-blocks // slices) + slices)
