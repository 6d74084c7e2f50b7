"""Plans of matrix products with an epilogue."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

from ...arrays.arguments import Views
from ...arrays.element import ElementKind
from ...arrays.tensor import TensorView
from ...device import KernelSource
from ...errors import Unsupported
from ...plans.plan import Launch
from ...plans.registry import Registered
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES
from ..kernel_source import kernel_source
from ..map.geometry import IndexSpace, MapDescriptor
from ..map.passed import DeclaredPass, PassedPlan
from ..map.plan import MapPlan
from .made import MadePlan
from .matmul_pass import MadePass, MatmulPass
from .schedules import FLOATS_OF_A_BYTE, PANEL, PORTABLE, ROUNDED, Sizes, Split, copying, shared_bytes
from .selection import MatmulSelection
from .variants import LAYOUTS, Layout, Variant, whole

_SIDES = ("rows", "columns", "columns")  # of the factors, the second right one included
_LARGEST = 1 << 30  # extents, and numbers of tiles, that the kernels of sm_90a count in 32 bits
_MAP_WORDS, _STRUCT_WORDS = 16, 8  # a tensor map is so long; a struct that begins with some is a multiple of these
_PACKED = ("left", "right", "second")
_WARP, _SQUARE = 32, 16
_BLOCKS = 1056  # eight for each of an H100's multiprocessors
_HALF = 2  # bytes of the results that the copy engine stores

_REMEMBERED = 64  # shapes and strides of arrays for which a plan keeps what follows from them

Facts = tuple[tuple[Any, ...], ...]
M = TypeVar("M", bound=MapDescriptor)


class MatmulPlan(MatmulSelection[M]):
    """Everything that a generated plan of the matmul family does not declare: of a product, or of several passes.

    The layout of the factors has two letters: `k` where one is contiguous along the depth, `m` where the left one is
    along rows, `n` where the right one is along columns. Other arrays may have any strides. Factors whose rows
    the copy engine cannot address are copied first, or multiplied by `mma.sync`, which gives the same bits.

    Of several passes, those that are products take the schedule that the model says, and the others are maps.
    """

    def __init__(self, descriptor: M, row: Registered, layouts: frozenset[str]) -> None:
        super().__init__(descriptor, row, layouts)
        self._known_variants: dict[Facts, Variant] = {}
        self._known_strides: dict[Facts, list[int]] = {}

    @classmethod
    def base_of(cls, declared: DeclaredPass) -> type[PassedPlan[Any]]:
        """What the plan of a pass derives from: that of a product, or of a map."""
        if isinstance(declared, MadePass):
            return MadePlan
        return MatmulPlan if isinstance(declared, MatmulPass) else MapPlan

    @classmethod
    def _pass_plans(cls, descriptor: M) -> Sequence[type[PassedPlan[Any]]]:
        """The passes of a problem, or the one that stands in for all of them."""
        plans = super()._pass_plans(descriptor)
        made = [of for of in plans if issubclass(of, MadePlan)]
        serving = [of for of in made if of.serves(descriptor)]
        return serving or [of for of in plans if of not in made]

    @cached_property
    def _sizes(self) -> Sizes:
        return self.sizes_of(self.descriptor)

    @cached_property
    def _parts(self) -> list[int]:
        """Bytes of a copy of each factor."""
        return self._parts_bytes(self.descriptor, self.sku)

    @cached_property
    def _split(self) -> Split | None:
        """The parts of the depth, where sums are of these."""
        return self.split_of(self.descriptor, self.sku.schedule)

    @cached_property
    def _counted(self) -> Sizes:
        """The extents of the products, of all parts."""
        return self._split.sizes(self._sizes) if self._split else self._sizes

    @cached_property
    def _operands(self) -> tuple[str, ...]:
        """The arguments that are more than a number."""
        return tuple(name for name, argument in self.ARGUMENTS.items() if self.AXES[name] or argument.written)

    @cached_property
    def _result(self) -> str:
        """The first output that is there."""
        written = self._written()
        return next((name for name in written if self.present(name)), written[0])

    @property
    def _has_tma(self) -> bool:
        return self.sku.arch == "sm_90a"

    @cached_property
    def _itemsize(self) -> int:
        """Bytes of an element of a factor."""
        return self.multiplied(self.element)[0].row.bytes

    @cached_property
    def _strided(self) -> Variant:
        """What takes any strides: sums of 8-bit floats are those of wgmma, which no other instruction gives."""
        copied = self._has_tma and self.multiplied(self.element)[0] in FLOATS_OF_A_BYTE
        return Variant("strided", tma=False, copied=copied)

    @cached_property
    def _merging(self) -> Variant:
        """What adds up sums of parts, whatever the layout of the factors."""
        return Variant(next(name for name in self.LAYOUTS if name in self.layouts), tma=False, merges=True)

    def _variants(self) -> Iterator[Variant]:
        if self._passes:
            return
        for layout in self.LAYOUTS:
            if layout in self.layouts:
                tma = self._has_tma and layout != "strided"
                yield Variant(layout, tma) if layout != "strided" else self._strided
                is_half = any(element.row.bytes == _HALF for element in self.elements_of(self._result))
                if tma and is_half and not self._split:
                    yield Variant(layout, tma, staged=True)
        if self._split:
            yield self._merging
        for side, size in zip(_PACKED, self._parts_bytes(self.descriptor, self.sku), strict=False):
            if size and "strided" in self.layouts:
                yield Variant("strided", tma=False, packs=side)

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """The sources of the layouts that this plan accepts."""
        types = self._chosen_types(dtypes)
        for part, own in self._types_of(dict(zip(self.CHOSEN, types, strict=True))):
            yield from part.sources(dtypes=own)
        for variant in self._variants():
            if self._is_stored(variant, types):
                yield self._source(variant, types)

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Every layout with every choice of element types: all that any arrays may need."""
        for part in self._passes:
            yield from part.variants()
        for variant, types in product(self._variants(), product(*(self.elements_of(name) for name in self.CHOSEN))):
            if self._is_stored(variant, types):
                yield variant.layout, dict(zip(self.CHOSEN, types, strict=True)), self._source(variant, types)

    def _is_stored(self, variant: Variant, types: tuple[ElementKind, ...]) -> bool:
        """Whether a result of these types can be stored so."""
        chosen = dict(zip(self.CHOSEN, types, strict=True))
        element = chosen.get(self._result) or self.elements_of(self._result)[0]
        return not variant.staged or element.row.bytes == _HALF

    def _schedule(self, variant: Variant) -> Schedule:
        if variant.copied:
            assert isinstance(self.sku.schedule, Schedule)
            return copying(self.sku.schedule)
        own = variant.tma or not self._has_tma
        schedule = self.sku.schedule if own else Schedule.parse(PORTABLE[self.tag_of(self.sku)])
        assert isinstance(schedule, Schedule)
        return schedule

    def _source(self, variant: Variant, types: tuple[ElementKind, ...]) -> KernelSource:
        source = self._sources.get((variant, types))
        if source is None:
            layout, schedule = LAYOUTS[variant.layout], self._schedule(variant)
            panels = variant.tma or variant.copied
            left, right = self.FACTORS
            cluster = dict(schedule.numbers).get("cluster", 1)
            source = self._sources[variant, types] = kernel_source(
                self._row,
                {
                    "SCHEDULE": ",".join(f"{name}={value}" for name, value in schedule.constants),
                    "TMA": int(variant.tma),
                    **({"COPIED": 1} if variant.copied else {}),
                    **({"FACTOR_BYTES": 1} if self._itemsize == 1 else {}),
                    **({"SPLIT": 1 + variant.merges} if self._split else {}),
                    **({"ROUNDED": 1} if self.tag_of(self.sku) == ROUNDED else {}),
                    "STAGED": int(variant.staged),
                    "LEFT_SIDE": int(layout.left_side),
                    "RIGHT_SIDE": int(layout.right_side),
                    "STRIDED": int(layout.strided),
                    "PACK": _PACKED.index(variant.packs) + 1 if variant.packs else 0,
                    **({"PACK_SIDE": int(self._packs_side(variant.packs))} if variant.packs else {}),
                    "LEFT": f"{left}_",
                    "RIGHT": f"{right}_",
                    **({"SECOND": f"{self.SECOND}_"} if self.SECOND else {}),
                    "RESULT": f"{self._result}_",
                    **self._span_constants,
                    **self._weight_constants,
                    **self._vectors,
                    **({"CLUSTER": cluster} if cluster > 1 else {}),
                    **self._kind,
                    **self._number,
                },
                present={a.name: self.present(a.name) for a in self.ARGUMENTS.values() if a.optional},
                types=dict(zip(self.CHOSEN, types, strict=True)),
                kernel=self._kernel_of(variant),
                shared=0 if variant.packs or variant.merges else shared_bytes(schedule, self._itemsize, tma=panels),
            )
        return source

    def _kernel_of(self, variant: Variant) -> str:
        """What the entry point is called after, where there are several."""
        own = f"pack_{variant.packs}" if variant.packs else "merge" if variant.merges else ""
        return "_".join(filter(None, (self._name, own)))

    @cached_property
    def _span_constants(self) -> dict[str, str | int]:
        """What parts matrices have, if they have parts."""
        if self.SPAN is None:
            return {}
        ends, of, segments = self.SPAN
        return {"SPAN": of.upper(), "SEGMENTS": int(segments), "ENDS": f"{ends}_"}

    @cached_property
    def _weight_constants(self) -> dict[str, str]:
        """Of each weight its operand, and of how many places of batch, rows, columns and depth an element is."""
        found = list[int]()
        for name, axes in self.WEIGHTS.items():
            if name in self._operands:
                found += [self._operands.index(name), *(dict(axes).get(role, 0) for role in Sizes._fields)]
        return {"WEIGHTS": ",".join(map(str, found))} if self.WEIGHTS else {}

    @cached_property
    def _vectors(self) -> dict[str, str]:
        """Which operands are vectors, if any are: along rows, or along columns; others are matrices."""
        masks = {"OF_ROWS": 0, "OF_COLUMNS": 0}
        rows, columns = ((self.DIMS[side],) for side in _SIDES[:2])
        for number, name in enumerate(self._operands):
            along = self.AXES[name]
            if name not in self.multiplicands() and not (rows in along and columns in along):
                masks["OF_COLUMNS" if columns in along else "OF_ROWS"] |= 1 << number
        return {name: f"{mask}ull" for name, mask in masks.items()} if any(masks.values()) else {}

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        if self._passes:
            return self._in_passes(views, workspace or VECTOR_BYTES)  # any address, where nothing is launched
        if self._is_empty(self._sizes) or self._result not in views:
            return []
        types = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        device, given, (views, copies) = self._device_of(views), views, self._copied(views, workspace)
        variant = self._variant(views)
        schedule = self._schedule(variant)
        cluster, count = dict(schedule.numbers).get("cluster", 1), self._tiles(self._counted, schedule)
        most = max(1, device.multiprocessors // cluster) if variant.tma or variant.copied else 2**31 - 1
        grid = (min(count, most) * cluster, 1, 1)
        launches = [self._copying(given, types, packs, place) for packs, place in copies]
        sums = (workspace or VECTOR_BYTES) + sum(self._parts)  # of parts, behind all copies
        words = self._words(views, variant, sums if self._split else 0)
        launches.append(Launch(self._source(variant, types), grid, schedule.threads, words))
        return [*launches, self._adding(given, types, sums)] if self._split else launches

    def _adding(self, views: Views, types: tuple[ElementKind, ...], sums: int) -> Launch:
        """The launch that adds up what others have summed of parts, in squares of a warp each."""
        threads, sizes = self._schedule(self._merging).threads, self._sizes
        squares = sizes.batch * -(-sizes.rows // _SQUARE) * -(-sizes.columns // _SQUARE)
        blocks = min(_BLOCKS, -(-squares * _WARP // threads))
        words = self._words(views, self._merging, sums)
        return Launch(self._source(self._merging, types), (blocks, 1, 1), threads, words)

    def _copied(self, views: Views, workspace: int) -> tuple[Views, list[tuple[str, int]]]:
        """The arrays with copies of factors, where these help the copy engine, and which are to be made where."""
        sizes = self._parts
        if not any(sizes) or "strided" not in self.layouts or self._variant(views).tma:
            return views, []
        known, copies, workspace = dict(views), [], workspace or VECTOR_BYTES  # any address, where nothing is launched
        for name, packs, size in zip(self.multiplicands(), _PACKED, sizes, strict=False):
            if size:
                known[name] = self._copy_of(views[name], name, workspace)
                copies.append((packs, workspace))
                workspace += size
        return (known, copies) if self._variant(known).tma else (views, [])

    def _copy_of(self, view: TensorView, name: str, place: int) -> TensorView:
        """A factor whose rows are whole packs; a matrix that all share is copied once."""
        axes, strides, step = [dim for (dim,) in self.AXES[name]], {}, 1
        extents, given = (dict(zip(axes, of, strict=True)) for of in (view.shape, view.strides))
        for dim in reversed(self._inner_last(name)):
            shared = dim == self.DIMS.get("batch") and (given[dim] == 0 or extents[dim] == 1)
            strides[dim] = 0 if shared else step
            step = step * extents[dim] if step > 1 else whole(extents[dim], view.element.row.bytes)
        return view._replace(pointer=place, strides=tuple(strides[dim] for dim in axes), capacity=None, owner=None)

    def _packs_side(self, packs: str) -> bool:
        """Whether the inner axis of a copy is the factor's side, not the depth."""
        return self._inner_last(self.multiplicands()[_PACKED.index(packs)])[-1] != self.DIMS["depth"]

    def _copying(self, views: Views, types: tuple[ElementKind, ...], packs: str, place: int) -> Launch:
        variant = Variant("strided", tma=False, packs=packs)
        threads, name = self._schedule(variant).threads, self.multiplicands()[_PACKED.index(packs)]
        *outer, _ = (self._sizes_of_dims[dim] for dim in self._inner_last(name))
        blocks = min(_BLOCKS, -(-math.prod(outer) * _WARP // threads))
        words = self._words(views, variant, place)
        return Launch(self._source(variant, types), (blocks, 1, 1), threads, words)

    @cached_property
    def _sizes_of_dims(self) -> dict[str, int]:
        space = IndexSpace.of(self.descriptor)
        return {dim: space.size(dim) for dim in self.DIMS.values()}

    def _variant(self, views: Views) -> Variant:
        """The strictest layout that the factors keep to, of those that this plan accepts."""
        facts = _facts(views)
        if facts not in self._known_variants:
            _remember(self._known_variants, facts, self._strictest(views))
        return self._known_variants[facts]

    def _strictest(self, views: Views) -> Variant:
        for name, layout in LAYOUTS.items():
            if name in self.layouts and not layout.strided:
                if self._has_tma and self._maps(views, layout, staged=False) is not None:
                    staged = not self._split and self._maps(views, layout, staged=True) is not None
                    return Variant(name, tma=True, staged=staged)
                if not self._has_tma and self._is_packed(views, layout):
                    return Variant(name, tma=False, staged=False)
        if "strided" in self.layouts:
            return self._strided
        raise self._other_layout("strided")

    def _along(self, views: Views, name: str, *dims: str) -> TensorView:
        """An argument with one axis for each of these roles, of extent 1 where it has none."""
        view, axes = views[name], [dim for (dim,) in self.AXES[name]]
        of = {
            **self.DIMS,
            **{side: part for side, part in (("rows", self.BAND), ("columns", self.PART)) if part in axes},
        }
        places = [axes.index(of[role]) if of.get(role) in axes else None for role in dims]
        shape = tuple(1 if place is None else view.shape[place] for place in places)
        strides = tuple(0 if place is None or view.shape[place] == 1 else view.strides[place] for place in places)
        return view._replace(shape=shape, strides=strides)

    def _steps(self, views: Views, name: str, *dims: str) -> tuple[int, ...]:
        """An argument's strides along dims of these roles, or what their places share; 0 where it has none."""
        if name not in views:
            return (0,) * len(dims)
        if name not in self.WEIGHTS:
            return self._along(views, name, *dims).strides
        strides = dict(zip(dict(self.WEIGHTS[name]), views[name].strides, strict=True))
        return tuple(strides.get(role, 0) for role in dims)

    def _factors(self, views: Views, layout: Layout) -> Iterator[tuple[TensorView, bool]]:
        """The factors as the layout has them, the contiguous axis last, and whether that is their side."""
        sides = (layout.left_side, layout.right_side, layout.right_side)
        for name, side, is_side in zip(self.multiplicands(), _SIDES, sides, strict=False):
            order = ("batch", "depth", side) if is_side else ("batch", side, "depth")
            yield self._along(views, name, *order), is_side

    def _is_packed(self, views: Views, layout: Layout) -> bool:
        """Whether the factors are whole packs of 16 bytes along their contiguous axes."""
        vec = VECTOR_BYTES // self._itemsize
        for view, _ in self._factors(views, layout):
            *outer, inner = view.strides
            unit = inner == 1 or view.shape[-1] == 1
            if not unit or view.shape[-1] % vec or view.pointer % VECTOR_BYTES or any(s % vec for s in outer):
                return False
        return True

    def _maps(self, views: Views, layout: Layout, *, staged: bool) -> list[tuple[TensorView, tuple[int, int]]] | None:
        """What the copy engine moves, each with its box of rows and columns; None if it cannot."""
        from ...devices.tensor_map import cannot_map

        schedule = self.sku.schedule
        assert isinstance(schedule, Schedule)
        numbers = dict(schedule.numbers)
        tall, wide, cluster, swapped = (numbers[name] for name in ("block_m", "block_n", "cluster", "swapped"))
        # Of the instruction's first factor and of its second, of which blocks of a cluster load parts for each other.
        turns = cluster if self._turns() else 1
        first, second = (tall // turns, 64 // turns), (wide // cluster, 64 // cluster)
        if self.SECOND and not swapped:  # each right factor has half of the tile
            second = (wide // 2, 64)
        depth = PANEL // self._itemsize
        along_depth_and_side = (second, first, first) if swapped else (first, second, second)
        factors = zip(self._factors(views, layout), along_depth_and_side, strict=False)
        maps = [(view, (rows[is_side], depth)) for (view, is_side), rows in factors]
        if staged:
            result = self._along(views, self._result, "batch", "rows", "columns")
            if result.element.row.bytes != _HALF or result.shape[-1] * _HALF % VECTOR_BYTES:
                return None  # it stores whole words: an H100 wrote an element beside rows of odd length
            maps.append((result, (wide if swapped else 64, 64)))
        counted = max(*self._counted, self._tiles(self._counted, schedule))
        return None if counted > _LARGEST or any(cannot_map(view, "a factor") for view, _ in maps) else maps

    def _words(self, views: Views, variant: Variant, copy: int = 0) -> array[int]:
        words = array("q")
        if variant.tma:
            from ...devices.tensor_map import encode

            maps = self._maps(views, LAYOUTS[variant.layout], staged=variant.staged)
            if maps is None:
                raise Unsupported(f"{type(self).__name__}: the copy engine cannot address the arrays")
            for view, box in maps:
                words.extend(encode(view, box))
            words.extend([0] * (_MAP_WORDS * (len(self.multiplicands()) + 1 - len(maps))))
        words.extend(self._strides(views))
        if variant.tma:  # what the arguments begin with is aligned as maps are
            words.extend([0] * (-len(words) % _STRUCT_WORDS))
        words.extend([views[name].pointer if name in views else 0 for name in self.ARGUMENTS])
        words.extend(self._read)
        words.extend([copy] * self._sums)
        if variant.tma:
            words.extend([0] * (-len(words) % _STRUCT_WORDS))
        return words

    def _strides(self, views: Views) -> list[int]:
        """The extents of the product, and the strides of each operand along them."""
        facts = _facts(views)
        if facts not in self._known_strides:
            of_sides, words = dict(zip(self.multiplicands(), _SIDES, strict=False)), [*self._sizes]
            for name in self._operands:
                side = of_sides.get(name)
                roles = ("batch", side, "depth") if side else ("batch", "rows", "columns")
                words += self._steps(views, name, *roles)
            words += self._split or ()
            if self.WEIGHTS:
                words += [step for name in self._operands for step in self._steps(views, name, "depth")]
            _remember(self._known_strides, facts, words)
        return self._known_strides[facts]

    @cached_property
    def _sums(self) -> int:
        """How many sums the kernel has: each product, and what it reduces of each part."""
        return len(self.multiplicands()) - 1 + sum(map(self._is_reduced, self._written()))

    @cached_property
    def _read(self) -> tuple[int, ...]:
        """The sizes and fields that kernels read."""
        space = IndexSpace.of(self.descriptor)
        return (*[space.size(dim) for dim in self.SIZES], *self._words_of(self.SCALARS))


def _facts(views: Views) -> Facts:
    """What decides all of a call but addresses."""
    return tuple([(name, v.shape, v.strides, v.element, v.pointer % VECTOR_BYTES) for name, v in views.items()])


def _remember(known: dict[Facts, Any], facts: Facts, value: Any) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[facts] = value
