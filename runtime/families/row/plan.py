"""Plans of the row family: rows and columns, each any group of axes, in the form that `row.cuh` takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, TypeVar

from ...arrays.arguments import Argument, Views
from ...arrays.axes import coalesce
from ...arrays.element import ElementKind
from ...arrays.workspace import rounded
from ...device import Device, KernelSource
from ...devices.limits import shared_bytes
from ...devices.named import default_device
from ...errors import InvalidProblem
from ...plans.plan import Launch, Plan
from ...plans.preference import PlanPreference
from ...plans.registry import KernelRows, Registered, by_element
from ...plans.sku import VECTOR_BYTES, KernelSku, Tile
from ...plans.tuned import Facts
from .geometry import (
    MAX_GRID,
    REDUCE_SLICES,
    Geometry,
    Problem,
    RowDescriptor,
    Words,
    axis_words,
    blocks_for,
    padded,
    parts_of,
    problem_of,
    reciprocal_word,
    strips_of,
)
from .source import prefetch_bytes, row_axes_of, row_source

_TICKET_BYTES = 4
_OF_COLS = "[rows] that with 1 for each axis of cols, [cols] those axes or their product"
_SHAPES = {"element": "[rows, cols]", "row": "[rows]", "col": "[cols]"}
_OF_WARPS = ("row4x32x2r8", "row4x32x4r8", "row8x16x4r8", "row16x8x4r8", "row32x4x4r8", "row64x1x4r16", "row128x1x4r8")
_UP_TO_512 = (
    *(*_OF_WARPS, "row128x1x8r8 f32 f16 bf16", "row256x1x8r4 f32 f16 bf16", "row512x1x8r2 f32 f16 bf16"),
    *("row256x1x4r4 f64", "row512x1x4r2 f64"),
)
_OF_BLOCKS = (*_UP_TO_512, "row1024x1x8b132r1 f32 f16 bf16", "row1024x1x4b132r1 f64")
_WIDE_ONCE = "wide128x1x8r8 f32 f16 bf16", "wide128x1x4r8 f64"
# The tiles of ops that need no more registers and shared memory than usual: those whose threads wait for each other
# once in a row, and those where they wait more often; whose rows are read once; and that sum below a largest number.
TILES = {
    "one wait": (*_OF_BLOCKS, "row256x1x4x8b60r4 f64", "row512x1x4x8b30r2", "row1024x1x4x8b15r1", "wide384x1x2r1"),
    "more waits": (
        *(*_OF_BLOCKS, "row256x1x8x8r4 f32 f16 bf16", "row512x1x8x8r2 f32 f16 bf16"),
        *("row256x1x4x8r4 f64", "row512x1x4x8r2 f64", "wide384x1x2r1"),
    ),
    "one look": (*_OF_WARPS, "row128x1x8r8 f32 f16 bf16", *_WIDE_ONCE),
    "sums below": (
        *(*_UP_TO_512, "row512x1x16r2s8 f32 f16 bf16", "row512x1x16x2r2s8 f32 f16 bf16"),
        *("row512x1x16x4r2s8 f32 f16 bf16", "row512x1x12r2s8 f64", "row512x1x12x2r2s8 f64", "row512x1x12x4r2s8 f64"),
        *_WIDE_ONCE,
    ),
}

R = TypeVar("R", bound=RowDescriptor)


class RowPlan(Plan[R]):
    """Everything that a generated plan of the row family does not declare."""

    LAYOUTS: ClassVar[tuple[str, ...]] = ("packed", "dense", "strided", "gathered")
    SCALARS: ClassVar[tuple[str, ...]] = ()  # descriptor fields the kernel reads
    COLUMN_SUMS: ClassVar[tuple[str, ...]] = ()  # for each, the descriptor's flag that says it is wanted, or ""
    DESCRIPTOR: ClassVar[type[RowDescriptor]]
    ROW_REDUCTIONS: ClassVar[int] = 0  # that a wide kernel's columns need

    @classmethod
    def shape_text(cls, argument: Argument) -> str:
        """The dims that it has a value for."""
        return _SHAPES[argument.over]

    @classmethod
    def dims_text(cls) -> str:
        """Which axes rows and columns are."""
        return f"[rows, cols] is {cls.DESCRIPTOR._shape}, {_OF_COLS};\n"

    def __init__(self, descriptor: R, row: Any, layouts: frozenset[str]) -> None:
        super().__init__(descriptor, row, layouts)
        self._geometries: dict[Any, Geometry] = {}

    @classmethod
    def _check_sizes(cls, descriptor: R) -> None:
        problem = Problem.of(descriptor)
        if max(problem.rows, problem.cols, problem.rows * problem.cols) >= 1 << 63:
            got = f"{problem.rows} rows of {problem.cols}"
            raise InvalidProblem(f"{cls.__name__}: shape {problem.shape} has {got} elements, 2^63 or more")

    @classmethod
    def cannot_hold(cls, descriptor: R, sku: KernelSku) -> str | None:
        """A row that is longer than the tile, unless the tile is wide."""
        cols, capacity = problem_of(descriptor).cols, sku.tile.columns(sku.element.row.bytes)
        return None if sku.tile.wide or cols <= capacity else f"a row has {cols} columns, the tile holds {capacity}"

    @classmethod
    def _refusal(cls, descriptor: R, sku: KernelSku, preference: PlanPreference, device: Device | None) -> str | None:
        # Some tiles are for some devices only: without a device they are for whichever arrays will most likely be on.
        target = default_device() if device is None and sku.tile.arch else device
        if target is not None and target.arch == "host" and sku.tile.cluster > 1 and not preference.archs:
            return f"runs on the host device only if archs allows {sku.arch}: portable kernels are faster there"
        refused = super()._refusal(descriptor, sku, preference, target)
        return refused or (cls._beyond(descriptor, sku, target.arch) if target is not None else None)

    @classmethod
    def _beyond(cls, descriptor: R, sku: KernelSku, arch: str) -> str | None:
        """Why a block's prefetch needs more shared memory than the architecture has, or None."""
        inputs = [a for a in cls.ARGUMENTS.values() if a.over == "element" and a.role != "out"]
        read = [a for a in inputs if not a.optional or getattr(descriptor, a.optional)]
        widest = [max(a.elements(sku.element), key=lambda kind: kind.row.bytes) for a in read]
        needed, available = prefetch_bytes(sku, widest), shared_bytes(arch)
        return None if needed <= available else f"a block needs {needed} bytes of shared memory, {arch} has {available}"

    @classmethod
    def facts_of(cls, descriptor: R) -> Facts:
        """Rows and columns, and whether contiguous arrays have rows of whole packs."""
        problem = problem_of(descriptor)
        long = [axis for axis, n in enumerate(problem.shape) if n > 1]
        columns = [axis for axis in long if axis in problem.col_axes]
        whole_packs = problem.cols * ElementKind(descriptor.element).row.bytes % VECTOR_BYTES == 0
        packed = whole_packs and columns == long[len(long) - len(columns) :]
        flags = super().facts_of(descriptor).same
        return Facts({**flags, "packed": int(packed)}, {"rows": problem.rows, "cols": problem.cols})

    @classmethod
    def workspace_of(cls, descriptor: R, sku: KernelSku) -> int:
        """Bytes of partial column sums, and for wide rows of the row results and tickets that column sums need."""
        return sum(cls._workspace_sizes(descriptor, sku))

    @classmethod
    def _workspace_sizes(cls, descriptor: R, sku: KernelSku) -> list[int]:
        """Bytes of each part, in the order of the kernel's argument struct; 0 for sums that are not wanted."""
        problem, acc = problem_of(descriptor), sku.element.row.acc.row.bytes
        bytes_per_sum = rounded(parts_of(problem, sku) * problem.cols * acc)
        sums = [bytes_per_sum if not flag or getattr(descriptor, flag) else 0 for flag in cls.COLUMN_SUMS]
        if not sums or not sku.tile.wide:
            return sums
        reductions = [rounded(problem.rows * acc)] * cls.ROW_REDUCTIONS
        return [*sums, *reductions, rounded(strips_of(problem, sku) * _TICKET_BYTES)]

    @cached_property
    def _vec(self) -> int:
        """Elements per pack."""
        return VECTOR_BYTES // self.element.row.bytes

    @cached_property
    def _problem(self) -> Problem:
        return Problem.of(self.descriptor)

    @classmethod
    def shapes_of(cls, descriptor: R) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The allowed shapes of each argument, the default first."""
        problem = Problem.of(descriptor)
        return {a.name: problem.shapes_of(a.over) for a in cls.ARGUMENTS.values()}

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """The sources of each layout that this plan accepts."""
        types = self._chosen_types(dtypes)
        for layout in self.LAYOUTS:
            if layout in self.layouts:
                yield from (self._source(layout, n, types) for n in self._row_axes(layout))

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Every layout with every choice of element types: all that the caller's arrays may need."""
        for layout in self.LAYOUTS:
            for axes, types in product(self._row_axes(layout), product(*map(self.elements_of, self.CHOSEN))):
                yield layout, dict(zip(self.CHOSEN, types, strict=True)), self._source(layout, axes, types)

    def _row_axes(self, layout: str) -> tuple[int, ...]:
        return row_axes_of(self.sku, layout, self.ARGUMENTS.values())

    def _source(self, layout: str, row_axes: int, types: tuple[ElementKind, ...]) -> KernelSource:
        source = self._sources.get((layout, row_axes, types))
        if source is None:
            source = self._sources[layout, row_axes, types] = row_source(
                self._row,
                self.ARGUMENTS.values(),
                layout,
                row_axes=row_axes,
                present=self.present,
                types=dict(zip(self.CHOSEN, types, strict=True)),
            )
        return source

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        key = tuple([(name, v.shape, v.strides, v.pointer % VECTOR_BYTES, v.element) for name, v in views.items()])
        geometry = self._geometries.get(key)
        if geometry is None:
            if len(self._geometries) >= 256:
                self._geometries.clear()
            geometry = self._geometries[key] = self._geometry(views)
        return geometry.launches(views, workspace)

    def _geometry(self, views: Views) -> Geometry:
        problem = self._problem
        over = {name: self.ARGUMENTS[name].over for name in views}
        by_row = [name for name in views if over[name] != "col"]
        by_col = [name for name in views if over[name] != "row"]
        row_extent, row_strides = coalesce(problem.row_shape, [self._along(views, n, problem.row_axes) for n in by_row])
        col_extent, col_strides = coalesce(problem.col_shape, [self._along(views, n, problem.col_axes) for n in by_col])
        rows, cols = dict(zip(by_row, row_strides, strict=True)), dict(zip(by_col, col_strides, strict=True))
        strictest = self._layout(views, problem.rows, row_extent, rows, col_extent, cols)
        looser = self.LAYOUTS[self.LAYOUTS.index(strictest) :]  # of which each takes what those before it take
        layout = next((name for name in looser if name in self.layouts), None)
        if layout is None:
            raise self._other_layout(strictest)
        types = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        words = Words()
        words += [0, problem.rows, problem.cols, reciprocal_word(problem.cols)]
        words += [*axis_words(row_extent), *axis_words(col_extent)]
        for name, argument in self.ARGUMENTS.items():
            words.point(name)
            if argument.over != "col":
                words += padded(rows.get(name, ()))
            if argument.over != "row":
                words += padded(cols.get(name, ()))
            if argument.over == "element":
                words += self._rows_inside(row_extent, rows.get(name, (0,)))
        words += self._words_of(self.SCALARS)
        self._add_workspace(words)
        row_axes = next(n for n in self._row_axes(layout) if n >= len(row_extent))
        return Geometry(self._source(layout, row_axes, types), words, self._grids(row_axes), self.sku.tile.threads)

    def _rows_inside(self, extent: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
        """The contiguous rows around which two more packs are still elements of the array."""
        if len(extent) != 1 or strides[0] != self._problem.cols or not strides[0]:
            return 0, 0
        around = -(-2 * self._vec // strides[0])
        return around, self._problem.rows - around

    def _along(self, views: Views, name: str, axes: Sequence[int]) -> tuple[int, ...]:
        tensor = views[name]
        if self.ARGUMENTS[name].over != "col":
            return tuple(tensor.strides[a] for a in axes)
        if len(tensor.shape) == len(axes):
            return tensor.strides
        strides, step = [], tensor.strides[0]  # one axis laid out along several, the last fastest
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
        if any(stride != 1 for (stride,) in cols.values()):
            return "strided"
        vec = self._vec
        if col_extent[0] % vec:
            return "dense"
        for name in cols:
            tensor = views[name]
            itemsize = tensor.element.row.bytes
            pack = min(VECTOR_BYTES, vec * itemsize)
            starts = () if self.ARGUMENTS[name].over == "col" or row_count <= 1 else rows[name]
            if tensor.pointer % pack or any(step * itemsize % pack for step in starts):
                return "dense"
        return "packed"

    def _add_workspace(self, words: Words) -> None:
        sizes = self._workspace_sizes(self.descriptor, self.sku)
        if not sizes:
            return
        words += [parts_of(self._problem, self.sku)]
        offset = 0
        absent = 0 if self.sku.tile.wide else self.ROW_REDUCTIONS + 1
        for size in sizes:
            words.scratch(offset)
            offset += size
        words += [0] * absent

    def _grids(self, row_axes: int) -> tuple[tuple[int, int, int], ...]:
        problem, tile = self._problem, self.sku.tile
        if not self.COLUMN_SUMS:
            blocks = -(-problem.rows // tile.rows)
            if tile.blocks or row_axes > 1:
                blocks = min(blocks, tile.blocks or MAX_GRID)
            across = min(blocks * tile.cluster, MAX_GRID)
            return ((across, -(-blocks * tile.cluster // across), 1),) if blocks else ()
        if tile.wide:
            if problem.cols == 0:
                return ((max(1, min(problem.rows, MAX_GRID)), 1, 1),)
            gather = max(1, min(problem.rows, MAX_GRID))
            return (gather, 1, 1), (strips_of(problem, self.sku), parts_of(problem, self.sku), 1)
        rows = (blocks_for(problem.rows, tile) * tile.cluster, 1, 1)
        has_sums = any(a.over == "col" and a.written and self.present(a.name) for a in self.ARGUMENTS.values())
        folded = tile.threads // REDUCE_SLICES * tile.cluster
        columns = -(-problem.cols // folded) * tile.cluster if has_sums else 0
        return (rows, (columns, 1, 1)) if columns else (rows,)


def row_kernels(
    plan: type[RowPlan[Any]],
    *,
    tiles: str | Sequence[str] = "one wait",
    arch: str = "sm_80",
    contraction: bool = False,
    flush_subnormals: bool = False,
    inline: str | None = None,
) -> KernelRows:
    """A row of the kernel table for each element type and tile, narrowest tile first, wide ones last.

    `tiles` are those of a name in TILES, or as `by_element` has them. Math precision and accumulator follow from the
    element: they are derived, never typed in. `inline` is the text of the kernels, where there is no file of it.
    """
    source = plan.source_file(inline, contraction, flush_subnormals)
    texts = TILES[tiles] if isinstance(tiles, str) else tiles

    def make(elements: Collection[str]) -> Iterator[Registered]:
        for tag in elements:
            element, everywhere = ElementKind(tag), plan.promised_of(ElementKind(tag))
            # Elsewhere another tile takes the rows of one that needs an architecture, and adds in another order.
            here = replace(everywhere, bit_stable_across_arch=False)
            for _, text in by_element((tag,), texts):
                tile = Tile.parse(text)
                promised = here if tile.arch else everywhere
                yield Registered(plan.sku_of(element, tile.arch or arch, promised, tile), source)

    return KernelRows(plan, make)
