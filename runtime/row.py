"""Plans of the row family: rows of columns, each side any group of axes, brought to the shape `row.cuh` works on."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, TypeVar

from .arguments import Views
from .axes import coalesce, split_axes
from .descriptor import Descriptor
from .device import KernelSource
from .element import ElementKind
from .errors import Unsupported
from .plan import Launch, Plan
from .registry import Registered, SourceFile
from .sku import VECTOR_BYTES, BackendKind, Direction, KernelSku, PrecisionGuarantee, Tile
from .workspace import ALIGNMENT, rounded

MAX_AXES = 8
MAX_GRID = 2**31 - 1
MAX_GRID_Y = 65535
WARP = 32
_TICKET_BYTES = 4


class RowDescriptor(Descriptor):
    """A descriptor whose `_shape` field's axes fall into rows and columns."""

    __slots__ = ()
    _shape: ClassVar[str]

    @property
    def col_axes(self) -> tuple[int, ...]:
        """The axes that a row runs along."""
        raise AssertionError("generated descriptors define this")


R = TypeVar("R", bound=RowDescriptor)


@dataclass(frozen=True, slots=True)
class _Problem:
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
    def of(cls, descriptor: RowDescriptor) -> _Problem:
        shape = getattr(descriptor, descriptor._shape)
        return cls(shape, *split_axes(len(shape), descriptor.col_axes))

    def shapes_of(self, over: str) -> tuple[tuple[int, ...], ...]:
        """The shapes that a tensor over elements, rows or columns may have."""
        if over == "element":
            return (self.shape,)
        if over == "row":
            return (tuple(1 if axis in self.col_axes else n for axis, n in enumerate(self.shape)),)
        return tuple(dict.fromkeys(((self.cols,), self.col_shape)))


class RowPlan(Plan[R]):
    """Everything a generated plan of the row family does not declare."""

    LAYOUTS: ClassVar[tuple[str, ...]] = ("packed", "strided", "gathered")
    SCALARS: ClassVar[tuple[tuple[str, str], ...]]  # descriptor fields the kernel reads, and "d" or "q"
    CHOSEN: ClassVar[tuple[str, ...]]  # arguments whose element type the caller chooses
    COLUMN_SUMS: ClassVar[int]
    ROW_REDUCTIONS: ClassVar[int]  # that a wide kernel's columns need

    def __init__(self, descriptor: R, row: Any, layouts: frozenset[str]) -> None:
        super().__init__(descriptor, row, layouts)
        self._geometries: dict[Any, _Geometry] = {}

    @classmethod
    def cannot_hold(cls, descriptor: R, sku: KernelSku) -> str | None:
        """A row that is longer than the tile, unless the tile is wide."""
        cols, held = _Problem.of(descriptor).cols, sku.schedule.columns(sku.element.row.bytes)
        return None if sku.schedule.wide or cols <= held else f"a row has {cols} columns, the tile holds {held}"

    @classmethod
    def workspace_of(cls, descriptor: R, sku: KernelSku) -> int:
        """Parts of the column sums, and for wide rows the reductions and tickets that the columns need."""
        return sum(cls._workspace_parts(descriptor, sku))

    @classmethod
    def _workspace_parts(cls, descriptor: R, sku: KernelSku) -> list[int]:
        if not cls.COLUMN_SUMS:
            return []
        problem, acc = _Problem.of(descriptor), sku.element.row.acc.row.bytes
        sums = [rounded(_parts(problem, sku) * problem.cols * acc)] * cls.COLUMN_SUMS
        if not sku.schedule.wide:
            return sums
        reductions = [rounded(problem.rows * acc)] * cls.ROW_REDUCTIONS
        return [*sums, *reductions, rounded(_strips(problem, sku) * _TICKET_BYTES)]

    @cached_property
    def _problem(self) -> _Problem:
        return _Problem.of(self.descriptor)

    @cached_property
    def _shapes(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        return {a.name: self._problem.shapes_of(a.over) for a in self.ARGUMENTS.values()}

    def shapes(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The shapes each argument may have, the usual one first."""
        return self._shapes

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """One source for each layout this plan accepts."""
        held = {name: ElementKind((dtypes or {}).get(name, self.elements_of(name)[0])) for name in self.CHOSEN}
        for layout in self.LAYOUTS:
            if layout in self.layouts:
                yield self._source(layout, tuple(held.values()))

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Every layout with every choice of element types: all that the caller's arrays may ask for."""
        for layout in self.LAYOUTS:
            for held in product(*(self.elements_of(name) for name in self.CHOSEN)):
                yield layout, dict(zip(self.CHOSEN, held, strict=True)), self._source(layout, held)

    def _source(self, layout: str, held: tuple[ElementKind, ...]) -> KernelSource:
        source = self._sources.get((layout, held))
        if source is None:
            defines = [f"SKU_{self.sku.symbol}=1", f"BARACUDA_LAYOUT={layout.upper()}"]
            for argument in self.ARGUMENTS.values():
                if argument.optional:
                    defines.append(f"BARACUDA_HAS_{argument.name.upper()}={int(self.present(argument.name))}")
            defines += [f"BARACUDA_{n.upper()}={kind.row.cuda}" for n, kind in zip(self.CHOSEN, held, strict=True)]
            file = self._row.source
            source = self._sources[layout, held] = KernelSource(
                file.path, file.text, self.sku.symbol, tuple(defines), file.contraction, file.flush_subnormals
            )
        return source

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        key = tuple((name, v.shape, v.strides, v.pointer % VECTOR_BYTES, v.element) for name, v in views.items())
        geometry = self._geometries.get(key)
        if geometry is None:
            if len(self._geometries) >= 256:
                self._geometries.clear()
            geometry = self._geometries[key] = self._geometry(views)
        return geometry.launches(views, workspace)

    def _geometry(self, views: Views) -> _Geometry:
        problem = self._problem
        over = {name: self.ARGUMENTS[name].over for name in views}
        by_row = [name for name in views if over[name] != "col"]
        by_col = [name for name in views if over[name] != "row"]
        row_extent, row_strides = coalesce(problem.row_shape, [self._along(views, n, problem.row_axes) for n in by_row])
        col_extent, col_strides = coalesce(problem.col_shape, [self._along(views, n, problem.col_axes) for n in by_col])
        rows, cols = dict(zip(by_row, row_strides, strict=True)), dict(zip(by_col, col_strides, strict=True))
        layout = self._layout(views, problem.rows, row_extent, rows, col_extent, cols)
        if layout not in self.layouts:
            accepted = " or ".join(sorted(self.layouts))
            raise Unsupported(f"{type(self).__name__}: the arrays are {layout}, this plan was selected for {accepted}")
        held = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        words = _Words()
        words += [0, problem.rows, problem.cols, *_axes(row_extent), *_axes(col_extent)]
        for name, argument in self.ARGUMENTS.items():
            words.point(name)
            if argument.over != "col":
                words += _padded(rows.get(name, ()))
            if argument.over != "row":
                words += _padded(cols.get(name, ()))
        for name, code in self.SCALARS:
            words += struct.unpack("q", struct.pack(code, getattr(self.descriptor, name)))
        self._add_workspace(words)
        return _Geometry(self._source(layout, held), words, self._grids(), self.sku.schedule.threads)

    def _along(self, views: Views, name: str, axes: Sequence[int]) -> tuple[int, ...]:
        there = views[name]
        if self.ARGUMENTS[name].over != "col":
            return tuple(there.strides[a] for a in axes)
        if len(there.shape) == len(axes):
            return there.strides
        strides, step = [], there.strides[0]  # one axis laid out along several, the last fastest
        for extent in reversed(self._problem.col_shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    def _layout(
        self,
        views: Views,
        row_count: int,
        row_extent: tuple[int, ...],
        rows: Mapping[str, tuple[int, ...]],
        col_extent: tuple[int, ...],
        cols: Mapping[str, tuple[int, ...]],
    ) -> str:
        if len(col_extent) > 1:
            return "gathered"
        vec = VECTOR_BYTES // self.element.row.bytes
        if col_extent[0] % vec:
            return "strided"
        for name, (stride,) in cols.items():
            there = views[name]
            itemsize = there.element.row.bytes
            pack = min(VECTOR_BYTES, vec * itemsize)
            starts = () if self.ARGUMENTS[name].over == "col" or row_count <= 1 else rows[name]
            if stride != 1 or there.pointer % pack or any(step * itemsize % pack for step in starts):
                return "strided"
        return "packed"

    def _add_workspace(self, words: _Words) -> None:
        sizes = self._workspace_parts(self.descriptor, self.sku)
        if not sizes:
            return
        words += [_parts(self._problem, self.sku)]
        offset = 0
        absent = 0 if self.sku.schedule.wide else self.ROW_REDUCTIONS + 1
        for size in sizes:
            words.scratch(offset)
            offset += size
        words += [0] * absent

    def _grids(self) -> tuple[tuple[int, int, int], ...]:
        problem, tile = self._problem, self.sku.schedule
        if not self.COLUMN_SUMS:
            blocks = min(-(-problem.rows // tile.rows), MAX_GRID)
            return ((blocks, 1, 1),) if blocks else ()
        if tile.wide:
            if problem.cols == 0:
                return ((max(1, min(problem.rows, MAX_GRID)), 1, 1),)
            gather = max(1, min(problem.rows, MAX_GRID))
            return (gather, 1, 1), (_strips(problem, self.sku), _parts(problem, self.sku), 1)
        columns = -(-problem.cols // WARP)
        rows = (_blocks(problem, self.sku), 1, 1)
        return (rows, (columns, 1, 1)) if columns else (rows,)


def _blocks(problem: _Problem, sku: KernelSku) -> int:
    """How many blocks share the rows of an op with column sums; at least one, which writes the sums of nothing."""
    tile = sku.schedule
    return max(1, min(tile.blocks, -(-problem.rows // tile.rows)))


def _parts(problem: _Problem, sku: KernelSku) -> int:
    return min(_blocks(problem, sku), MAX_GRID_Y) if sku.schedule.wide else _blocks(problem, sku) * sku.schedule.rows


def _strips(problem: _Problem, sku: KernelSku) -> int:
    packs = sku.schedule.lanes * (VECTOR_BYTES // sku.element.row.bytes)
    return -(-problem.cols // packs)


def _padded(strides: Sequence[int]) -> list[int]:
    return [*strides, *[0] * (MAX_AXES - len(strides))]


def _axes(extent: Sequence[int]) -> list[int]:
    return [len(extent), *extent, *[1] * (MAX_AXES - len(extent))]


class _Words:
    """The argument struct as 64-bit words, with the places where pointers go."""

    def __init__(self) -> None:
        self.words = array("q")
        self.pointers: list[tuple[int, str]] = []
        self.offsets: list[tuple[int, int]] = []

    def __iadd__(self, values: Sequence[int]) -> _Words:
        self.words.extend(values)
        return self

    def point(self, name: str) -> None:
        self.pointers.append((len(self.words), name))
        self.words.append(0)

    def scratch(self, offset: int) -> None:
        assert offset % ALIGNMENT == 0
        self.offsets.append((len(self.words), offset))
        self.words.append(0)


class _Geometry:
    """Launches for arrays of given strides; only pointers are left to fill in."""

    def __init__(
        self, source: KernelSource, words: _Words, grids: tuple[tuple[int, int, int], ...], threads: int
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
            launches.append(Launch(self.source, grid, self.threads, words))
        return launches


def row_kernels(
    source: SourceFile,
    *,
    category: str,
    op: str,
    direction: Direction,
    arch: str,
    rungs: Sequence[str],
    tiles: Mapping[ElementKind, Sequence[Tile]],
) -> Iterator[Registered]:
    """A row of the kernel table for each element and tile, narrowest tile first, wide ones last.

    Math precision and accumulator follow from the element: they are derived, never typed in.
    """
    for element, of_element in tiles.items():
        acc = element.row.acc
        guarantee = PrecisionGuarantee(acc, acc, **dict.fromkeys(rungs, True))
        for tile in of_element:
            yield Registered(
                KernelSku(category, op, direction, element, arch, BackendKind.BESPOKE, guarantee, tile), source
            )
