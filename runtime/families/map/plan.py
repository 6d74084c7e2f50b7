"""Plans of the map family: a program on every cell of an index space, whose values are stored or summed along dims."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, product
from typing import Any, ClassVar, NamedTuple, TypeVar

from ...arrays.arguments import Views
from ...arrays.axes import coalesce
from ...arrays.element import ElementKind
from ...arrays.tensor import TensorView, same_view
from ...device import KernelSource, WatchedArray
from ...plans.plan import Launch
from ...plans.registry import KernelRows, Registered, by_element
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES
from ..kernel_source import kernel_source
from ..row.geometry import Geometry, Words
from .geometry import MAX_AXES, Axis, CellCut, MapDescriptor, short_divisor, space_words
from .layout import Placed, layout_of
from .lists import ListCut, ListGeometry
from .passed import PassedPlan
from .selection import NARROW, MapSelection

_REMEMBERED = 256  # geometries kept per plan
_FAR_APART = 2**12  # bytes between copies of what is read: a block writes so much of each that memory is not in pieces
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "u64", 16: "uint4"}  # by their bytes
_NO_AXIS: dict[Axis, int] = {}
SCHEDULES = ("t256.packs4.blocks1056",)  # the usual ones

M = TypeVar("M", bound=MapDescriptor)


class _Side(NamedTuple):
    """Some of the space's axes, merged: extents and each operand's strides."""

    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


class MapPlan(MapSelection[M]):
    """Everything that a generated plan of the map family does not declare."""

    LAYOUTS: ClassVar[tuple[str, ...]] = ("packed", "flat", "strided")

    def __init__(self, descriptor: M, row: Registered, layouts: frozenset[str]) -> None:
        super().__init__(descriptor, row, layouts)
        self._geometries: dict[Any, Geometry | ListGeometry] = {}

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """The sources of the layouts that this plan accepts, and of in-place copies."""
        types = self._chosen_types(dtypes)
        for part, own in self._types_of(dict(zip(self.CHOSEN, types, strict=True))):
            yield from part.sources(dtypes=own)
        for layout, walk, wide, splat in self._shapes_of_source():
            for skipped in self._skips():
                if layout in self.layouts and (wide == self._wide or (wide and layout == "strided")):
                    yield self._source(layout, walk, types, skipped, wide, splat)

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Every layout with every choice of element types and index width: all that any arrays may need."""
        for part in self._passes:
            yield from part.variants()
        for layout, walk, wide, splat in self._shapes_of_source():
            for types in product(*(self.elements_of(name) for name in self.CHOSEN)):
                source = self._source(layout, walk, types, (), wide, splat)
                yield layout, dict(zip(self.CHOSEN, types, strict=True)), source

    def _shapes_of_source(self) -> Iterator[tuple[str, str, bool, tuple[int, ...]]]:
        """Layouts, how cells' values are used, whether indices are wide, and which operands are one element a pack."""
        if self._passes:
            return
        walk = self._cut.walk if self._cut else ""
        layouts = {"singles": ("strided",), "lists": ("packed", "strided")}.get(walk, self.LAYOUTS)
        if walk == "lists":
            yield from (("strided", "order", wide, ()) for wide in (False, True))
        for layout, wide in product(layouts, (False, True)):
            for walk in (self._cut.walk,) if self._cut else ("cells", "copies")[: 2 if layout == "packed" else 1]:
                yield layout, walk, wide, ()
                if layout == "packed" and self._splat:
                    yield layout, walk, wide, self._splat
            if layout == "packed" and not wide and self._in_pairs:
                yield layout, "pairs", wide, self._splat

    def _skips(self) -> Iterator[tuple[str, ...]]:
        """The sets of outputs that a kernel may leave out, for in-place copies, with one left to write."""
        written = [n for n, argument in self.ARGUMENTS.items() if argument.written and self.present(n)]
        copies = [n for n, of in self.COPIES.items() if n in written and self._may_be_left_out(n, of)]
        for count in range(max(1, min(len(copies) + 1, len(written)))):
            yield from combinations(copies, count)

    def _may_be_left_out(self, name: str, of: str) -> bool:
        """Whether kernels can be compiled without the output, and it may alias its input."""
        argument = self.ARGUMENTS[name]
        return bool(argument.optional) and of in argument.may_alias

    def _source(
        self,
        layout: str,
        walk: str,
        types: tuple[ElementKind, ...],
        skipped: tuple[str, ...],
        wide: bool,
        splat: tuple[int, ...],
    ) -> KernelSource:
        key = layout, walk, types, skipped, wide, splat
        source = self._sources.get(key)
        if source is None:
            optional = [name for name, argument in self.ARGUMENTS.items() if argument.optional]
            constants = {"LAYOUT": layout.upper(), "WIDE": int(wide), "WALK": walk.upper()}
            constants["SPLAT"] = sum(1 << operand for operand in splat)
            if walk == "pairs" and self._still:
                constants["STILL"] = sum(1 << operand for operand in self._still)
            if splat and self._alike:
                constants["ALIKE"] = ",".join(map(str, self._alike))
            if self.BOUNDS and not wide:
                constants["SHORT"] = 1
                constants |= {"DIVISORS": 1} if self.DIVISORS else {}
            if self._few_terms:
                constants["TERMS"] = ",".join(map(str, self._few_terms))
                constants["TERM_INDICES"] = ",".join(map(str, self._term_indices))
            if self.FILLS:
                constants["EXACT_FILL"] = int(self._holds_fills(types))
            source = self._sources[key] = kernel_source(
                self._row,
                {**constants, **self._kind, **self._number},
                present={name: self.present(name) and name not in skipped for name in optional},
                types=dict(zip(self.CHOSEN, types, strict=True)),
                element=self._word,
                kernel=self._name,
            )
        return source

    @cached_property
    def _word(self) -> str:
        """The type as which an op that only copies moves its elements; "" for an op that computes."""
        outputs = [name for name, argument in self.ARGUMENTS.items() if argument.written]
        return _WORDS[self.element.row.bytes] if all(name in self.COPIES for name in outputs) else ""

    def _skipped(self, views: Views) -> tuple[str, ...]:
        """Outputs that already hold their value: all of them, or those that a kernel can leave out.

        A kernel with another output to write rewrites the rest.
        """
        up_to_date = tuple(out for out, of in self.COPIES.items() if out in views and same_view(views[out], views[of]))
        if all(n in up_to_date for n in views if self.ARGUMENTS[n].written):
            return up_to_date
        return tuple(out for out in up_to_date if self.ARGUMENTS[out].optional)

    def _watched(self, views: Views, scratch: TensorView | None) -> list[WatchedArray]:
        skipped = self._skipped(views)
        return super()._watched({n: v for n, v in views.items() if n not in skipped}, scratch)

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        if self._passes:
            return self._in_passes(views, workspace)
        skipped = self._skipped(views)
        places = tuple((name, v.strides, v.pointer % VECTOR_BYTES, v.element) for name, v in views.items())
        key = skipped, places
        geometry = self._geometries.get(key)
        if geometry is None:
            if len(self._geometries) >= _REMEMBERED:
                self._geometries.clear()
            used = {n: v for n, v in views.items() if n not in skipped}
            geometry = self._geometries[key] = self._geometry(used, skipped)
        return geometry.launches(views, workspace)

    def _geometry(self, views: Views, skipped: tuple[str, ...]) -> Geometry | ListGeometry:
        steps = self._steps(views)
        if isinstance(self._cut, ListCut):
            return self._list_geometry(views, steps, self._cut, skipped)
        kept, across = self._cells(views, steps) if self._cut is None else self._merge(*self._sides, steps)
        layout, packed = self._layout(views, list(steps), kept, across)
        if layout not in self.layouts:
            raise self._other_layout(layout)
        types = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        written = any(self.ARGUMENTS[n].written for n in views)
        wide, copies = self._wide or self._is_far(views, list(steps), kept, across), math.prod(across.extents)
        walk = self._cut.walk if self._cut else "copies" if copies > 1 else "cells"
        if walk == "cells" and layout == "packed" and not wide and self._in_pairs:
            halves = self._halves(views, list(steps), kept)
            kept, across, packed, walk = (*halves, "pairs") if halves else (kept, across, packed, walk)
        along = across if walk == "rows" else kept
        splat = self._splat if layout == "packed" and self._is_usual(along, (kept, across)) else ()
        source = self._source(layout, walk, types, skipped, wide, splat)
        schedule = self.sku.schedule
        assert isinstance(schedule, Schedule)
        vec = VECTOR_BYTES // self.element.row.bytes
        cut = self._cut or CellCut.of(math.prod(kept.extents), copies, layout, vec, schedule)
        words = self._words(views, packed, kept, across, cut.words(schedule), wide=wide)
        return Geometry(source, words, cut.grids(schedule) if written else (), schedule.threads)

    def _halves(self, views: Views, operands: Sequence[str], kept: _Side) -> tuple[_Side, _Side, int] | None:
        """The cells in the first half of an axis, where the others lie, and a bit for each operand with whole packs.

        None if no axis will do: the last one must have an even number of packs, and others an even number of cells.
        """
        last = len(kept.extents) - 1
        for axis in (*reversed(range(last)), last):
            if kept.extents[axis] % 2 or any(kept.strides[n][axis] for n in self._still):
                continue
            half = kept.extents[axis] // 2
            near = _Side(*coalesce([*kept.extents[:axis], half, *kept.extents[axis + 1 :]], kept.strides))
            far = _Side((2,), tuple((strides[axis] * half,) for strides in kept.strides))
            layout, packed = self._layout(views, operands, near, far)
            if layout == "packed" and self._is_usual(near, (near, far)):
                return near, far, packed
        return None

    def _is_usual(self, along: _Side, sides: Sequence[_Side]) -> bool:
        """Whether operands have one element for all cells of a pack, and equal strides, where their dims say so."""
        is_splat = not any(along.strides[n][-1] for n in self._splat)
        return is_splat and all(of.strides[n] == of.strides[m] for of in sides for n, m in enumerate(self._alike))

    def _list_geometry(
        self, views: Views, steps: Mapping[str, Mapping[Axis, int]], cut: ListCut, skipped: tuple[str, ...]
    ) -> ListGeometry:
        schedule, operands = self.sku.schedule, list(steps)
        assert isinstance(schedule, Schedule)
        keys, written = self.LISTS[0], [n for n in views if self.ARGUMENTS[n].written]
        of = self._listed(self._space).ordered(steps[written[0]] if written else _NO_AXIS)
        types = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        numbers = of.numbers(self._space.extent)
        step = numbers[of.indexed[-1]]
        # Keys lie along axes of their own, and lists of groups beside them.
        alone = {n: strides if n == keys else _NO_AXIS for n, strides in steps.items()}
        groups, across = self._merged(of.groups, {**alone, "": numbers}), self._merged(of.summed, alone)
        groups, group = _Side(groups.extents, groups.strides[:-1]), groups.strides[-1]
        far = self._is_far(views, operands, groups, across)
        order = self._words(
            views, 0, groups, across, cut.words(schedule), wide=far, lists=cut.list_words(step, group, schedule)
        )
        source = self._source("strided", "order", types, skipped, far, ())
        sort = Geometry(source, order, cut.sort_grids(schedule) if written else (), schedule.threads)

        kept, across = self._merge(of.kept, of.summed, steps)
        layout, packed = self._layout(views, operands, kept, across)
        if layout not in self.layouts:
            raise self._other_layout(layout)
        wide = self._wide or self._is_far(views, operands, kept, across)
        is_usual = layout == "packed" and self._is_usual(kept, (kept, across))
        source = self._source(layout, "lists", types, skipped, wide, self._splat if is_usual else ())
        words = self._words(
            views, packed, kept, across, cut.words(schedule), wide=wide, lists=cut.list_words(step, (), schedule)
        )
        lanes = VECTOR_BYTES // self.element.row.bytes if layout == "packed" else 1
        grids = cut.grids(lanes, schedule) if written else ()
        return ListGeometry(sort, Geometry(source, words, grids, schedule.threads))

    def _cells(self, views: Views, steps: Mapping[str, Mapping[Axis, int]]) -> tuple[_Side, _Side]:
        """The axes of cells, and those along which they are copied.

        Cells are independent, so they follow the outputs' memory order, in which writes are also fastest. So one block
        makes the copies only where they lie far apart: bf16 4096x4096 by 1x16 3794 GB/s, 3490 in order.
        """
        outputs = [n for n in views if self.ARGUMENTS[n].written]
        first = steps[outputs[0]] if outputs else _NO_AXIS
        axes = sorted(self._sides[0], key=lambda a: -abs(first.get(a, 0)))
        vary = {a for n, of in steps.items() if n not in outputs for a, step in of.items() if step}
        far = _FAR_APART // self.element.row.bytes
        copied = [a for a in axes if a not in vary and abs(first.get(a, 0)) >= far]
        kept, across = self._merge([a for a in axes if a not in copied], copied, steps)
        if copied and self._layout(views, list(steps), kept, across)[0] == "packed":
            return kept, across
        return self._merge(axes, (), steps)

    def _placed_axes(self, views: Views, name: str) -> list[int]:
        """Extents and strides along the axes that `name` is read at computed places of; of the absent, no places."""
        along = self._space.axes_along(self.AXES[name])
        axes = [along.index(((dim, 0),)) for dim in self.PLACED[name]]
        return [of[axis] for of in (views[name].shape, views[name].strides) for axis in axes]

    def _is_far(self, views: Views, operands: Sequence[str], kept: _Side, across: _Side) -> bool:
        """Whether elements of one tensor are too far apart for a 32-bit offset."""
        extents = (*kept.extents, *across.extents)
        for name, *strides in zip(operands, kept.strides, across.strides, strict=True):
            axes = [*zip(extents, (s for of in strides for s in of), strict=True)]
            if name in self.PLACED and name in views:
                places = self._placed_axes(views, name)
                axes += zip(places[: len(places) // 2], places[len(places) // 2 :], strict=True)
            if sum(abs(stride) * (extent - 1) for extent, stride in axes if extent) >= NARROW:
                return True
        return False

    def _words(
        self,
        views: Views,
        packed: int,
        kept: _Side,
        across: _Side,
        cut: Sequence[int],
        *,
        wide: bool,
        lists: Sequence[int] = (),
    ) -> Words:
        words = Words()
        sizes = self._parts_bytes(self.descriptor, self.sku)
        offsets = [sum(sizes[:place]) for place in range(len(sizes))]
        words += [0, packed]
        for side in (kept, across):
            words += space_words(side.extents, wide=wide)
            for strides in side.strides:
                words += [*strides[::-1], *[0] * (MAX_AXES - len(strides))]
        words += cut
        words += lists
        for offset in offsets[len(self.SUMS) :]:
            words.scratch(offset)
        for name in self.ARGUMENTS:
            words.point(name)
        for name in self.PLACED:
            words += self._placed_axes(views, name)
        words += [self._space.size(dim) for dim in self.SIZES]
        words += self._scalar_words(wide)
        for offset in offsets[: len(self.SUMS)]:
            words.scratch(offset)
        return words

    def _scalar_words(self, wide: bool) -> tuple[int, ...]:
        """The fields that a kernel reads, and how it divides by some of them, where its numbers have 32 bits."""
        if wide or not self.DIVISORS:
            return self._words_of(self.SCALARS)
        fields = zip(self.SCALARS, self._words_of(self.SCALARS), strict=True)
        words = ((n, *short_divisor(n)) if name in self.DIVISORS else (n,) for name, n in fields)
        return tuple(word for of in words for word in of)

    def _steps(self, views: Views) -> dict[str, dict[Axis, int]]:
        """For each operand (tensors that are more than a number, indices), its stride along each axis of the space.

        Of a tensor that is read at computed places, only along the other axes.
        """
        steps: dict[str, dict[Axis, int]] = {}
        for name in self._operands:
            axes = self.AXES[name] if name in views else ()
            steps[name] = self._space.strides_of(axes, views[name].strides) if axes else _NO_AXIS
        for name, dims in self.PLACED.items():
            steps[name] = {axis: step for axis, step in steps[name].items() if axis[0] not in dims}
        needed = self.CELL_INDICES if self._cut is None else self.INDICES
        return steps | {f"index_{dim}": self._space.places(dim) if dim in needed else _NO_AXIS for dim in self.INDICES}

    def _merge(
        self, kept: Sequence[Axis], across: Sequence[Axis], steps: Mapping[str, Mapping[Axis, int]]
    ) -> tuple[_Side, _Side]:
        """What is kept and what is reduced; few terms have an axis for each of theirs."""
        return self._merged(kept, steps), self._merged(across, steps, apart=bool(across and self._few_terms))

    def _merged(
        self, axes: Sequence[Axis], steps: Mapping[str, Mapping[Axis, int]], *, apart: bool = False
    ) -> _Side:
        extents = [self._space.extent[a] for a in axes]
        strides = [[of.get(a, 0) for a in axes] for of in steps.values()]
        return _Side(tuple(extents), tuple(map(tuple, strides))) if apart else _Side(*coalesce(extents, strides))

    def _layout(self, views: Views, operands: Sequence[str], kept: _Side, across: _Side) -> tuple[str, int]:
        walk = self._cut.walk if self._cut else ""
        if walk == "singles" or (not self._wide and self._is_far(views, operands, kept, across)):
            return "strided", 0
        vec = VECTOR_BYTES // self.element.row.bytes
        by_row = walk == "rows"
        along, others = (across, kept) if by_row else (kept, across)
        several = math.prod(others.extents) > 1
        placed = []
        for number, name in enumerate(operands):
            if name not in views or name in self.PLACED:
                continue
            if by_row and name in self.SUM_OUTPUTS:  # of which cells are stored one by one
                continue
            tensor, beside = views[name], others.strides[number] if several else ()
            written, itemsize = self.ARGUMENTS[name].written, tensor.element.row.bytes
            placed.append(Placed(number, tensor.pointer, itemsize, written, along.strides[number], beside))
        allowed = self.layouts - {"flat"} if walk in ("columns", "lists") else self.layouts
        if isinstance(self._cut, ListCut) and self._cut.cells % vec:
            return "strided", 0
        return layout_of(placed, along.extents, vec, cells=self._cut is None, allowed=allowed)


def map_kernels(
    plan: type[PassedPlan[Any]],
    *,
    schedules: Sequence[str] = SCHEDULES,
    arch: str = "sm_80",
    contraction: bool = False,
    flush_subnormals: bool = False,
    inline: str | None = None,
) -> KernelRows:
    """A row of the kernel table for each element and its schedule; see `by_element`.

    Precision follows from the element. `inline` is the text of the kernels, where there is no file of it.
    """
    source = plan.source_file(inline, contraction, flush_subnormals)

    def make(elements: Collection[str]) -> Iterator[Registered]:
        for tag, text in by_element(elements, schedules):
            element, schedule = ElementKind(tag), Schedule.parse(text)
            yield Registered(plan.sku_of(element, arch, plan.promised_of(element), schedule), source)

    return KernelRows(plan, make)
