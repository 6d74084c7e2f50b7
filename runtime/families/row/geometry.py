"""A row problem in integers: shapes split into rows and columns, and the kernel's argument words."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

from ...arrays.arguments import Views
from ...arrays.axes import split_axes
from ...arrays.workspace import ALIGNMENT
from ...device import KernelSource
from ...plans.descriptor import Descriptor
from ...plans.plan import Launch
from ...plans.sku import VECTOR_BYTES, KernelSku, Tile

MAX_AXES = 8
_RECENT = 64  # problems whose split is kept: selection asks for it with each tile
MAX_GRID = 2**31 - 1
MAX_GRID_Y = 65535
WARP = 32
REDUCE_SLICES = 16  # that a block adds the parts of its columns in, as in row.cuh


# Fields that name axes, by their last words: what they are with an axis put in front.
_SHIFTED: Mapping[str, Callable[[int], int]] = {
    "axes_mask": lambda mask: mask << 1,
    "axis": lambda axis: axis + (axis >= 0),
}


class RowDescriptor(Descriptor):
    """A descriptor whose `_shape` field's axes are split into rows and columns."""

    __slots__ = ()
    _any_rank: ClassVar[bool] = True
    _shape: ClassVar[str]
    _cols: ClassVar[str]  # the axes that a row runs along, of the fields

    @property
    def col_axes(self) -> tuple[int, ...]:
        """The axes that a row runs along."""
        axes: tuple[int, ...] = self._value_of(self._cols)
        return axes

    def _stacked(self, size: int) -> Self | None:
        axes = [(name, shift) for name in self._types for last, shift in _SHIFTED.items() if name.endswith(last)]
        changed: dict[str, Any] = {name: shift(getattr(self, name)) for name, shift in axes}
        changed[self._shape] = (size, *getattr(self, self._shape))
        larger = replace(self, **changed)
        larger.check()
        return larger if larger.col_axes == tuple(axis + 1 for axis in self.col_axes) else None


class Problem(NamedTuple):
    """A descriptor's shape, split."""

    shape: tuple[int, ...]
    row_axes: tuple[int, ...]
    col_axes: tuple[int, ...]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[a] for a in self.row_axes)

    @property
    def col_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[a] for a in self.col_axes)

    @property
    def rows(self) -> int:
        return math.prod(self.row_shape)

    @property
    def cols(self) -> int:
        return math.prod(self.col_shape)

    @classmethod
    def of(cls, descriptor: RowDescriptor) -> Problem:
        shape = getattr(descriptor, descriptor._shape)
        return cls(shape, *split_axes(len(shape), descriptor.col_axes))

    def shapes_of(self, over: str) -> tuple[tuple[int, ...], ...]:
        """The shapes that a tensor over elements, rows or columns may have."""
        if over == "element":
            return (self.shape,)
        if over == "row":
            return (tuple(1 if axis in self.col_axes else n for axis, n in enumerate(self.shape)),)
        return ((self.cols,), self.col_shape)[: 1 if len(self.col_axes) == 1 else 2]


@lru_cache(maxsize=_RECENT)
def problem_of(descriptor: RowDescriptor) -> Problem:
    """`Problem.of`, cached; a tracer's descriptors cannot be hashed."""
    return Problem.of(descriptor)


def blocks_for(rows: int, tile: Tile) -> int:
    """How many blocks (or clusters) share the rows of an op with column sums; at least one, which writes empty sums."""
    return max(1, min(tile.blocks, -(-rows // tile.rows)))


def parts_of(problem: Problem, sku: KernelSku) -> int:
    """The number of partial sums of each column."""
    blocks = blocks_for(problem.rows, sku.tile)
    return min(blocks, MAX_GRID_Y) if sku.tile.wide else blocks


def strips_of(problem: Problem, sku: KernelSku) -> int:
    """How many blocks side by side cover a wide row in the last pass."""
    packs = sku.tile.lanes * (VECTOR_BYTES // sku.element.row.bytes)
    return -(-problem.cols // packs)


def padded(strides: Sequence[int]) -> list[int]:
    """Strides as the kernel's structs have them."""
    return [*strides, *[0] * (MAX_AXES - len(strides))]


def axis_words(extent: Sequence[int]) -> list[int]:
    """Extents as the kernel's `Space` has them: their number, then each."""
    return [len(extent), *extent, *[1] * (MAX_AXES - len(extent))]


def reciprocal_word(count: int) -> int:
    """1 / `count` as a float, in the bits of a double; infinity for 0."""
    (rounded,) = struct.unpack("f", struct.pack("f", count))
    word: int
    (word,) = struct.unpack("q", struct.pack("d", 1 / rounded if rounded else math.inf))
    return word


class Words:
    """The argument struct as 64-bit words, with the places of pointers."""

    def __init__(self) -> None:
        self.words = array("q")
        self.pointers: list[tuple[int, str]] = []
        self.offsets: list[tuple[int, int]] = []

    def __iadd__(self, values: Sequence[int]) -> Words:
        self.words.extend(values)
        return self

    def point(self, name: str) -> None:
        self.pointers.append((len(self.words), name))
        self.words.append(0)

    def scratch(self, offset: int) -> None:
        assert offset % ALIGNMENT == 0
        self.offsets.append((len(self.words), offset))
        self.words.append(0)


class Geometry:
    """Launches for arrays of given strides; only pointers are missing."""

    def __init__(
        self, source: KernelSource, words: Words, grids: tuple[tuple[int, int, int], ...], threads: int
    ) -> None:
        self.source, self.grids, self.threads = source, grids, threads
        self.template, self.pointers, self.offsets = words.words, words.pointers, words.offsets

    def launches(self, views: Views, workspace: int) -> list[Launch]:
        """The launches with the pointers of `views` and the address of the workspace."""
        launches = []
        for stage, grid in enumerate(self.grids):
            words = self.template[:]
            words[0] = stage
            for place, name in self.pointers:
                if name in views:
                    words[place] = views[name].pointer
            for place, offset in self.offsets:
                words[place] = workspace + offset
            launches.append(Launch(self.source, grid, self.threads, words, overlaps=stage > 0))
        return launches
