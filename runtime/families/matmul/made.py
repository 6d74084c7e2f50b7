"""Plans of products with few rows that make their right factor while they run."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, TypeVar

from ...arrays.arguments import Views
from ...arrays.element import ElementKind
from ...arrays.tensor import TensorView
from ...device import KernelSource
from ...plans.plan import Launch
from ...plans.registry import Registered
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES, KernelSku
from ..kernel_source import kernel_source
from ..map.geometry import IndexSpace, MapDescriptor
from .matmul_pass import MatmulPass
from .schedules import MADE
from .selection import MatmulSelection

_SLAB, _WARP = 16, 32  # columns of a warp that multiplies, and its threads
_HALF, _ELEMENTS = 2, ("f16", "bf16")  # bytes of an element, and its types
# How long a run of the depth is, bytes of what a row has in one: zero point and scale, or a table; and those of flags.
_RUN, _PAIR, _TABLE, _FLAGS = 32, 8, 32, 192

M = TypeVar("M", bound=MapDescriptor)


class MadePlan(MatmulSelection[M]):
    """A pass that stands in for those that make a factor and multiply it; it takes no workspace.

    Sums have the bits of the others: `mma.sync` adds up the depth in the same order.
    """

    LAYOUTS: ClassVar[tuple[str, ...]] = ("kk", "strided")
    PLACED: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # argument -> dims whose places are computed
    INDICES: ClassVar[tuple[str, ...]] = ()  # dims whose index the program reads
    CODES: ClassVar[str] = ""  # the array of codes
    PAIRED: ClassVar[bool] = False  # whether the factor is `T((code - zero) * scale)`

    @classmethod
    def serves(cls, descriptor: M) -> bool:
        """Whether there are few rows."""
        return descriptor.element in _ELEMENTS and cls.sizes_of(descriptor).rows <= cls._schedules()[-1]["tokens"]

    @classmethod
    def _schedules(cls) -> list[Schedule]:
        return [Schedule.parse(text) for text in MADE[cls.PAIRED]]

    @classmethod
    def of_pass(cls, plan: type[Any], declared: MatmulPass) -> dict[str, Any]:
        assert declared.dims is not None
        axes = {name: plan.AXES[name] for name in (*declared.reads, *declared.writes)}
        return {"AXES": axes, "SUMMED": (declared.dims["depth"],), "LAYOUTS": cls.LAYOUTS}

    @classmethod
    def within(cls, descriptor: M, row: Registered, layouts: frozenset[str]) -> tuple[Registered, frozenset[str]]:
        rows = cls.sizes_of(descriptor).rows
        schedule = next(of for of in cls._schedules() if of["tokens"] >= rows)
        own = layouts & {*cls.LAYOUTS} or frozenset(cls.LAYOUTS)
        return replace(row, sku=replace(row.sku, schedule=schedule)), own

    @classmethod
    def cannot_hold(cls, descriptor: M, sku: KernelSku) -> str | None:
        """None: sums are floats."""
        return None

    @classmethod
    def _parts_bytes(cls, descriptor: M, sku: KernelSku) -> list[int]:
        return []

    @cached_property
    def _schedule(self) -> Schedule:
        schedule = self.sku.schedule
        assert isinstance(schedule, Schedule)
        return schedule

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        types = self._chosen_types(dtypes)
        return (self._source(layout, types) for layout in self.LAYOUTS if layout in self.layouts)

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        layouts = (layout for layout in self.LAYOUTS if layout in self.layouts)
        for layout, types in product(layouts, product(*(self.elements_of(name) for name in self.CHOSEN))):
            yield layout, dict(zip(self.CHOSEN, types, strict=True)), self._source(layout, types)

    def _source(self, layout: str, types: tuple[ElementKind, ...]) -> KernelSource:
        source = self._sources.get((layout, types))
        if source is None:
            numbers = dict(self._schedule.numbers)
            left, right = self.FACTORS
            depth, record = numbers["block_k"], _PAIR if self.PAIRED else _TABLE
            stage = depth * (numbers["tokens"] * _HALF + self._columns // 2) + _FLAGS
            stage += self._columns * (depth // _RUN) * record
            source = self._sources[layout, types] = kernel_source(
                self._row,
                {
                    "SCHEDULE": ",".join(f"{name}={value}" for name, value in self._schedule.constants),
                    "MADE": 1,
                    "TMA": 0,
                    "LEFT_SIDE": 0,
                    "RIGHT_SIDE": 0,
                    "STRIDED": int(layout == "strided"),
                    "LEFT": f"{left}_",
                    "RIGHT": f"{right}_",
                    "RESULT": f"{self._result}_",
                    **self._number,
                },
                present={a.name: self.present(a.name) for a in self.ARGUMENTS.values() if a.optional},
                types=dict(zip(self.CHOSEN, types, strict=True)),
                kernel=self._name,
                shared=numbers["stages"] * stage,
            )
        return source

    @property
    def _columns(self) -> int:
        """Of a block, in which one of the groups of warps multiplies."""
        return self._schedule.threads // (1 + self._schedule["loaders"]) // _WARP * _SLAB

    @cached_property
    def _result(self) -> str:
        """The first output that is there."""
        written = [name for name, argument in self.ARGUMENTS.items() if argument.written]
        return next((name for name in written if self.present(name)), written[0])

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        sizes = self.sizes_of(self.descriptor)
        if self._is_empty(sizes) or self._result not in views:
            return []
        types = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        grid = (-(-sizes.columns // self._columns), -(-sizes.rows // dict(self._schedule.numbers)["tokens"]), 1)
        source = self._source(self._layout(views), types)
        return [Launch(source, grid, self._schedule.threads, self._words(views))]

    def _layout(self, views: Views) -> str:
        """`kk`, where rows of the left factor and of words of codes are whole packs of 16 bytes; else any strides."""
        left = views[self.FACTORS[0]]
        is_whole = left.shape[-1] % (VECTOR_BYTES // _HALF) == 0
        if "kk" in self.layouts and is_whole and _is_packed(left) and _is_packed(views[self.CODES]):
            return "kk"
        if "strided" not in self.layouts:
            raise self._other_layout("strided")
        return "strided"

    def _words(self, views: Views) -> array[int]:
        """Extents, strides of each operand, addresses, axes along which places are computed, sizes and fields."""
        space, sizes = IndexSpace.of(self.descriptor), self.sizes_of(self.descriptor)
        words = array("q", sizes)
        later = [name for name, argument in self.ARGUMENTS.items() if argument.role == "out"]
        arrays = [*(name for name in self.ARGUMENTS if name not in later), "", *later]  # "": the factor, in no memory
        left, _ = self.FACTORS
        for name in (n for n in arrays if not n or self.AXES[n] or self.ARGUMENTS[n].written):
            of_right = ("columns", "depth") if name in self.PLACED else ("rows", "columns")
            roles = ("rows", "depth") if name == left else of_right
            strides = self._strides_of(views[name], name) if name in views else {}
            words.extend([0, *(strides.get(self.DIMS[role], 0) for role in roles)])
        for dim in self.INDICES:
            words.extend([0, int(dim == self.DIMS["columns"]), int(dim == self.DIMS["depth"])])
        words.extend([views[name].pointer if name in views else 0 for name in arrays])
        for name, dims in self.PLACED.items():
            strides, extents = self._strides_of(views[name], name), [space.size(dim) for dim in dims]
            words.extend([*extents, *(strides[dim] for dim in dims)])
        words.extend([*(space.size(dim) for dim in self.SIZES), *self._words_of(self.SCALARS), 0])
        return words

    def _strides_of(self, view: TensorView, name: str) -> dict[str, int]:
        """By the dims that its axes run along, but for those of one element."""
        axes = [dim for (dim,) in self.AXES[name]]
        return {dim: 0 if n == 1 else step for dim, n, step in zip(axes, view.shape, view.strides, strict=True)}


def _is_packed(view: TensorView) -> bool:
    """Whether rows are contiguous and begin at multiples of 16 bytes."""
    (rows, columns), (row, step) = view.shape, view.strides
    pack = VECTOR_BYTES // view.element.row.bytes
    return (step == 1 or columns == 1) and (rows == 1 or row % pack == 0) and view.pointer % VECTOR_BYTES == 0
