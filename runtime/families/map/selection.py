"""What plans of the map family say of a problem before arrays are there: how cells and sums are cut up, and sizes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from ...arrays.arguments import Argument
from ...arrays.element import ElementKind
from ...arrays.workspace import rounded
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES, KernelSku
from ...values import as_shape
from .geometry import Axis, Cut, Group, IndexSpace, MapDescriptor
from .lists import ListCut, Listed
from .map_pass import MapPass
from .passed import PassedPlan

_FEW_TERMS = 16  # whose places a kernel computes when it is compiled
NARROW = 2**31  # cells that 32-bit indices can count, and elements that a place can be away

M = TypeVar("M", bound=MapDescriptor)


class MapSelection(PassedPlan[M]):
    """What a generated plan of the map family declares, and what follows for a problem."""

    # Argument, or array held -> the dims that its axes run along: those of all cells, where it is not declared.
    AXES: ClassVar[dict[str, tuple[Group, ...]]] = {}
    PLACED: ClassVar[dict[str, tuple[str, ...]]] = {}  # argument -> the dims along which it is read at computed places
    INDICES: ClassVar[tuple[str, ...]] = ()  # dims whose index the program reads
    CELL_INDICES: ClassVar[tuple[str, ...]] = ()  # of those, what values of cells need
    SIZES: ClassVar[tuple[str, ...]] = ()  # dims whose size it reads
    SCALARS: ClassVar[tuple[str, ...]] = ()  # descriptor fields the kernel reads
    SUM_OUTPUTS: ClassVar[tuple[str, ...]] = ()  # arguments that are made of sums
    LISTS: ClassVar[tuple[str, ...]] = ()  # of reductions by an index: the array of keys, and the dim of the index
    FILLS: ClassVar[tuple[tuple[str, str], ...]] = ()  # fields that are read outside of arrays, each with its array
    BOUNDS: ClassVar[tuple[str, ...]] = ()  # formulas: if all are below 2^31, kernels compute with 32-bit numbers
    DIVISORS: ClassVar[tuple[str, ...]] = ()  # fields by which it divides numbers that these bound
    COPIES: ClassVar[dict[str, str]] = {}  # outputs -> the input that they equal
    SPACE: ClassVar[tuple[Group, ...] | None] = None  # of a pass: the dims of its cells, if not all

    @classmethod
    def _complete(cls, own: Mapping[str, Any]) -> None:
        super()._complete(own)
        everywhere = dict.fromkeys([*cls.ARGUMENTS, *cls.HELD], cls.DESCRIPTOR._space)
        cls.AXES = {**everywhere, **cls.AXES}

    @classmethod
    def shape_text(cls, argument: Argument) -> str:
        """The dims along its axes."""
        return f"[{', '.join([' * '.join(group) for group in cls.AXES[argument.name]])}]"

    @classmethod
    def shapes_of(cls, descriptor: M) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The shape of each argument."""
        space = IndexSpace.of(descriptor, cls.SPACE)
        return {name: (space.shape_of(cls.AXES[name]),) for name in cls.ARGUMENTS}

    @classmethod
    def of_pass(cls, plan: type[Any], declared: MapPass) -> dict[str, Any]:
        """Where its arrays lie, and what its sums make."""
        axes = {"AXES": {name: plan.AXES[name] for name in (*declared.reads, *declared.writes)}}
        axes |= {"INVARIANT": plan.INVARIANT}
        whole = declared.sums and declared.sum_outputs is None
        return {**axes, "SUM_OUTPUTS": declared.writes} if whole else axes

    @classmethod
    def _parts_bytes(cls, descriptor: M, sku: KernelSku) -> list[int]:
        cut, schedule = cls.cut(descriptor, sku), sku.schedule
        assert isinstance(schedule, Schedule)
        if cut is None or (isinstance(cut, Cut) and cut.splits == 1):
            return [0] * len(cls.SUMS)
        acc = sku.element.row.acc.row.bytes
        parts = cut.splits * cut.kept if isinstance(cut, Cut) else cut.sections * cut.cells
        sizes = [rounded(parts * (size or acc)) for size in cls.SUM_BYTES or [0] * len(cls.SUMS)]
        wanted = (not flag or getattr(descriptor, flag) for flag in cls.SUMS)
        sizes = [size if is_wanted else 0 for size, is_wanted in zip(sizes, wanted, strict=True)]
        return sizes if isinstance(cut, Cut) else [*sizes, *cut.arrays(schedule)]

    @classmethod
    def cannot_hold(cls, descriptor: M, sku: KernelSku) -> str | None:
        """More of what a reduction by an index counts than there is room for."""
        plans = [of for of in (*cls._pass_plans(descriptor), cls) if issubclass(of, MapSelection) and of.LISTS]
        cuts = [of.cut(descriptor, sku) for of in plans]
        return next((text for cut in cuts if isinstance(cut, ListCut) and (text := cut.too_many())), None)

    @classmethod
    def cut(cls, descriptor: M, sku: KernelSku) -> Cut | ListCut | None:
        """How sums are split; None without sums."""
        optional = [cls.ARGUMENTS[name].optional for name in cls.SUM_OUTPUTS]
        if not any(not flag or getattr(descriptor, flag) for flag in optional):
            return None
        for dim in descriptor._chunks if cls.LOOP else ():
            if dim not in cls.SUMMED:  # any part of a chunk is summed in the order of the whole
                descriptor = descriptor._with(dim, descriptor._chunk_of(dim))
        space, schedule = IndexSpace.of(descriptor, cls.SPACE), sku.schedule
        assert isinstance(schedule, Schedule)
        vec = VECTOR_BYTES // sku.element.row.bytes
        if cls.LISTS:
            of = cls._listed(space)
            axes = of.keyed, of.others, of.indexed, (*of.groups, *of.summed)
            lists, cells, keys, positions = (math.prod(space.extent[a] for a in part) for part in axes)
            return ListCut.of(lists, cells, keys, positions, vec, schedule)
        summed = math.prod(n for (dim, _), n in space.extent.items() if dim in cls.SUMMED)
        kept = math.prod(n for (dim, _), n in space.extent.items() if dim not in cls.SUMMED)
        if cls.INVARIANT and not {*cls.INVARIANT} & {*cls.SUMMED}:
            return Cut.invariant_of(kept, summed, space.run_apart_from(cls.SUMMED, cls.INVARIANT), vec, schedule)
        run = space.run_apart_from(cls.SUMMED)
        return Cut.of(kept, summed, run, vec, schedule, part_bytes=max(cls.SUM_BYTES, default=0))

    @classmethod
    def _listed(cls, space: IndexSpace) -> Listed:
        """The axes of the program's reductions by an index."""
        keys, dim = cls.LISTS
        varying = {axis for axes in space.axes_along(cls.AXES[keys]) for axis in axes}
        return Listed.of(space, varying, dim, cls.SUMMED)

    def depth_of(self, dims: Collection[str], count: int) -> int:
        """The maximum number of roundings of one of the `count` terms of a sum over `dims`."""
        if in_passes := self._depth_in_passes(dims, count):
            return int(in_passes)
        schedule = self.sku.schedule
        assert isinstance(schedule, Schedule)
        return self._cut.depth(VECTOR_BYTES // self.element.row.bytes, schedule) if self._cut else count

    @cached_property
    def _cut(self) -> Cut | ListCut | None:
        return self.cut(self.descriptor, self.sku)

    @cached_property
    def _few_terms(self) -> tuple[int, ...]:
        """The extents of the summed axes, the last first, where a thread takes all of few terms of a column; else ().

        Only of what is read at computed places, whose every term takes many instructions, and not along axes of shapes,
        which would need too many kernels.
        """
        cut, types = self._cut, self.descriptor._types
        if not self.PLACED or not isinstance(cut, Cut) or cut.walk != "columns":
            return ()
        if any(types.get(self.descriptor._dims[dim]) is as_shape for dim in self.SUMMED):
            return ()
        if cut.slices > 1 or cut.splits > 1 or not 0 < cut.units <= _FEW_TERMS:
            return ()
        return tuple(self._space.extent[axis] for axis in self._sides[1][::-1])

    @cached_property
    def _term_indices(self) -> list[int]:
        """Of the same axes, the operands that are their indices, where a dim has one axis."""
        operands = {name: number for number, name in enumerate(self._operands)}
        dims = [dim for dim, _ in self._sides[1][::-1]]
        alone = (dim if dims.count(dim) == 1 else "" for dim in dims)
        return [operands.get(f"index_{dim}", len(operands)) for dim in alone]

    @cached_property
    def _space(self) -> IndexSpace:
        return IndexSpace.of(self.descriptor, self.SPACE)

    @cached_property
    def _sides(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """The kept axes and the summed axes."""
        if isinstance(self._cut, ListCut):
            return (of := self._listed(self._space)).kept, of.summed
        gone = self.SUMMED if self._cut else ()
        kept = tuple(a for a in self._space.extent if a[0] not in gone)
        return kept, tuple(a for a in self._space.extent if a[0] in gone)

    @cached_property
    def _splat(self) -> tuple[int, ...]:
        """The operands that by their dims have one element for all cells of a pack, where the last axis has packs."""
        along = self._sides[self._cut is not None and self._cut.walk == "rows"]
        if not along or self._space.extent[along[-1]] == 1:
            return ()
        return self._constant_along(along[-1])

    @cached_property
    def _still(self) -> tuple[int, ...]:
        """The most operands that by their dims are constant along an axis of the cells, apart from the last one."""
        return max(map(self._constant_along, self._sides[0][:-1]), key=len, default=())

    @cached_property
    def _in_pairs(self) -> bool:
        """Whether a thread stores two packs of cells, where they can lie half of an axis apart.

        So it does where it reads one array, or none, for each cell: more of them are enough at once. On an H200, us
        with one pack and with two: gelu of bf16 16384x14336 255 and 225, rope 76 and 69, dropout 332 and 308,
        embedding of 16384x4096 74 and 68, swiglu of 8192x32768 370 and 372, its gradient 625 and 627.
        """
        written = {name for name, argument in self.ARGUMENTS.items() if argument.written}
        moved = {n for n, name in enumerate(self._operands) if self._is_there(name) and name not in written}
        has_packs = any(self._space.extent[axis] > 1 for axis in self._sides[0][-1:])
        return self._cut is None and not self._wide and has_packs and len(moved - {*self._still, *self._splat}) <= 1

    def _constant_along(self, axis: Axis) -> tuple[int, ...]:
        """The operands that are read, and by their dims are at one place along an axis."""
        names = {f"index_{dim}" for dim in self.INDICES if dim != axis[0]}
        for name, argument in self.ARGUMENTS.items():
            varies = any(axis in axes for axes in self._space.axes_along(self.AXES[name]))
            if not argument.written and (not varies or axis[0] in self.PLACED.get(name, ())):
                names.add(name)
        return tuple(number for number, name in enumerate(self._operands) if name in names)

    @cached_property
    def _alike(self) -> tuple[int, ...]:
        """For each operand, the first one that by its dims has the same strides; () if none has another's."""
        first: dict[Any, int] = {}
        alike = tuple(
            first.setdefault((self.AXES[name], self.PLACED.get(name)) if self._is_there(name) else name, number)
            for number, name in enumerate(self._operands)
        )
        return alike if len({*alike}) < len(alike) else ()

    def _is_there(self, operand: str) -> bool:
        """Whether it is an array, and present."""
        return operand in self.ARGUMENTS and self.present(operand)

    @cached_property
    def _operands(self) -> tuple[str, ...]:
        """What has an offset for each cell: arguments that are more than a number, and indices."""
        arrays = [n for n, a in self.ARGUMENTS.items() if self.AXES[n] or a.written or n in self.COPIES.values()]
        return (*arrays, *(f"index_{dim}" for dim in self.INDICES))

    @cached_property
    def _wide(self) -> bool:
        """Whether places and counts of cells need 64 bits."""
        if isinstance(self._cut, ListCut):
            count = self._cut.lists * self._cut.cells
        else:
            count = math.prod(self._space.extent.values())
        return max(count, self._largest) >= NARROW or any(getattr(self.descriptor, n) < 1 for n in self.DIVISORS)

    @cached_property
    def _largest(self) -> int:
        """The bound of the program's whole numbers."""
        if not self.BOUNDS:
            return 0
        of = self.descriptor
        most = {f"_{name}": abs(int(value)) for name, value in vars(of).items() if isinstance(value, int)}
        for dim in of._dims:
            most[f"_{dim}"] = max(most.get(f"_{dim}", 0), self._space.size(dim))
        values = {name: max(1, value) for name, value in most.items()}
        return max([int(of._value_of(text, values)) for text in self.BOUNDS])

    def _holds_fills(self, types: Sequence[ElementKind]) -> bool:
        """Whether arrays of these types can hold what is read outside of them."""
        chosen = dict(zip(self.CHOSEN, types, strict=True))
        for field, name in self.FILLS:
            dtype = self.ARGUMENTS[name].dtypes[0]
            row = chosen.get(name, self.element if dtype == "T" else ElementKind(dtype)).row
            value = row.acc.row.numpy.type(getattr(self.descriptor, field))
            if row.numpy.type(value) != value:
                return False
        return True
