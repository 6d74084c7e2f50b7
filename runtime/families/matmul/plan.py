"""Plans of matrix products with an epilogue."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple, TypeVar

from ...arrays.arguments import Argument, Views
from ...arrays.element import ElementKind
from ...arrays.tensor import TensorView
from ...arrays.workspace import rounded
from ...device import Device, KernelSource
from ...devices.named import default_device
from ...errors import Unsupported
from ...plans.plan import Launch
from ...plans.preference import PlanPreference
from ...plans.registry import Registered
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES, KernelSku
from ..kernel_source import kernel_source
from ..map.geometry import IndexSpace, MapDescriptor
from ..map.passed import DeclaredPass, PassedPlan
from ..map.plan import MapPlan
from .matmul_pass import MatmulPass
from .schedules import (
    BYTES,
    FLOATS_OF_A_BYTE,
    MULTIPLIED,
    OF_PASSES,
    PANEL,
    PORTABLE,
    SCHEDULES,
    WHOLE_OF_A_BYTE,
    Sizes,
    seconds,
    shared_bytes,
    tiles,
)

_SIDES = ("rows", "columns")
_LARGEST = 1 << 30  # extents, and numbers of tiles, that the kernels of sm_90a count in 32 bits
_MAP_WORDS, _STRUCT_WORDS = 16, 8  # a tensor map is so long; a struct that begins with some is a multiple of these
# What factors are multiplied as: floats of a byte as halves, where no instruction keeps f32 of their sums.
_MATH = {"f16": "T", "bf16": "T", "f32": "tf32x3", "f64": "acc", "i8": "i8", "u8": "i8"}
_FLOATS_OF_A_BYTE = {"sm_90a": "f8", "sm_80": "f16"}
_ORDER = ("f16", "bf16", "f32", "f64", *WHOLE_OF_A_BYTE)  # of kernels of a schedule
_PART = 128  # of the depth: what sums of floats of a byte are made of, with instructions that take 32
_LARGEST_OF, _SUM = {ElementKind.I8: 128, ElementKind.U8: 255}, 2**31 - 1
_PACKED = ("left", "right")
_WARP = 32
_COPYING_BLOCKS = 1056  # eight for each of an H100's multiprocessors
_HALF = 2  # bytes of the results that the copy engine stores

M = TypeVar("M", bound=MapDescriptor)


class _Layout(NamedTuple):
    """Whether the sides of each factor are contiguous, not the depth; whether anything else is allowed."""

    left_side: bool
    right_side: bool
    strided: bool = False


_LAYOUTS = {
    "kk": _Layout(False, False),
    "kn": _Layout(False, True),
    "mk": _Layout(True, False),
    "mn": _Layout(True, True),
    "strided": _Layout(False, False, strided=True),
}


class _Variant(NamedTuple):
    """What a source is compiled for: the layout of the factors, and what the copy engine moves."""

    layout: str
    tma: bool
    staged: bool = False  # whether it stores the result, too
    copied: bool = False  # whether threads move what it would
    packs: str = ""  # "left" or "right": it only copies that factor, for the copy engine to address it


def _fits_span(layout: _Layout, span: tuple[str, str, bool]) -> bool:
    """Whether packs of a layout do not lie along a dim of which matrices have parts: these may begin anywhere."""
    _, of, segments = span
    return layout.strided or (
        layout.left_side and layout.right_side if of == "depth" else not (segments and layout.left_side)
    )


def _whole(count: int, size: int) -> int:
    """So many elements in whole packs."""
    pack = VECTOR_BYTES // size
    return -(-count // pack) * pack


class MatmulPlan(PassedPlan[M]):
    """Everything that a generated plan of the matmul family does not declare: of a product, or of several passes.

    The layout of the factors has two letters: `k` where one is contiguous along the depth, `m` where the left one is
    along rows, `n` where the right one is along columns. Other arrays may have any strides. Factors whose rows
    the copy engine cannot address are copied first, or multiplied by `mma.sync`, which gives the same bits.

    Of several passes, those that are products take the schedule that the model says, and the others are maps.
    """

    LAYOUTS: ClassVar[tuple[str, ...]] = tuple(_LAYOUTS)
    LAYOUTS_OF_PASSES: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys((*_LAYOUTS, *MapPlan.LAYOUTS)))
    LAYOUTS_OF_BYTES: ClassVar[tuple[str, ...]] = ("kk", "strided")  # that instructions take
    FACTORS: ClassVar[tuple[str, str]] = ("", "")  # the left and the right one
    DIMS: ClassVar[Mapping[str, str]] = {}  # "batch", "rows", "columns", "depth" -> dim; there may be no batch
    SIZES: ClassVar[tuple[str, ...]] = ()  # dims whose size the program reads
    SCALARS: ClassVar[tuple[str, ...]] = ()  # descriptor fields the kernel reads
    # The array that says which "rows" or how much "depth" each matrix has, and whether these parts follow each other.
    SPAN: ClassVar[tuple[str, str, bool] | None] = None

    @classmethod
    def _complete(cls, own: Mapping[str, Any]) -> None:
        super()._complete(own)
        if own.get("PASSES"):
            cls.LAYOUTS = cls.LAYOUTS_OF_PASSES
        elif cls._takes_bytes():
            cls.LAYOUTS = cls.LAYOUTS_OF_BYTES
        if cls.SPAN and not own.get("PASSES"):
            cls.LAYOUTS = tuple(name for name in cls.LAYOUTS if _fits_span(_LAYOUTS[name], cls.SPAN))

    @classmethod
    def _shares_rows(cls) -> bool:
        """Whether each row is of one matrix."""
        return cls.SPAN is not None and cls.SPAN[1:] == ("rows", True)

    @classmethod
    def _takes_bytes(cls) -> bool:
        """Whether factors are of 8 bits, whatever the element type."""
        elements = cls.DESCRIPTOR._elements
        return all(kind in BYTES for tag in elements for kind in cls.multiplied(ElementKind(tag)))

    @classmethod
    def multiplied(cls, element: ElementKind) -> tuple[ElementKind, ...]:
        """The types that factors may have, all of one kind; of several passes, those of all products."""
        products = [of for of in cls.PASS_PLANS if issubclass(of, MatmulPlan)] if cls.PASS_PLANS else [cls]
        found = [cls_.ARGUMENTS[name].elements(element) for cls_ in products for name in cls_.FACTORS]
        return tuple(dict.fromkeys(kind for kinds in found for kind in kinds))

    @classmethod
    def math_of(cls, element: ElementKind, arch: str) -> str:
        """What the kernels of `arch` multiply factors as, as `PrecisionGuarantee.of` has it."""
        kind, *_ = cls.multiplied(element)
        return _FLOATS_OF_A_BYTE[arch] if kind in FLOATS_OF_A_BYTE else _MATH[kind]

    @classmethod
    def base_of(cls, declared: DeclaredPass) -> type[PassedPlan[Any]]:
        """What the plan of a pass derives from: that of a product, or of a map."""
        return MatmulPlan if isinstance(declared, MatmulPass) else MapPlan

    @classmethod
    def of_pass(cls, plan: type[Any], declared: MatmulPass) -> dict[str, Any]:
        """Where its arrays lie, and what it sums over."""
        axes = {name: plan.AXES[name] for name in (*declared.reads, *declared.writes)}
        assert declared.dims is not None
        depth = declared.dims["depth"]
        # What is handed over is contiguous along its last axis.
        held = [place for place, name in enumerate(declared.factors) if name in plan.HELD]
        sides = {place: axes[declared.factors[place]][-1] != (depth,) for place in held}
        fit = [n for n, of in _LAYOUTS.items() if of.strided or all(of[place] == side for place, side in sides.items())]
        of_bytes = any(argument.dtypes[0] in BYTES for argument in plan.TENSORS if argument.name in declared.factors)
        fit = [*cls.LAYOUTS_OF_BYTES] if of_bytes else fit
        of_span = [name for name in fit if declared.span is None or _fits_span(_LAYOUTS[name], declared.span)]
        return {"AXES": axes, "SUMMED": (depth,), "LAYOUTS": tuple(of_span)}

    @classmethod
    def within(cls, descriptor: M, row: Registered, layouts: frozenset[str]) -> tuple[Registered, frozenset[str]]:
        """The row with the schedule that takes the least time by the model, and what of the layouts products have."""
        row, layouts = super().within(descriptor, row, layouts)
        tag, *_ = cls.multiplied(row.sku.element)
        known = [Schedule.parse(text) for arch, tags, text in cls.schedules() if arch == row.sku.arch and tag in tags]
        portable = row.sku.arch == "sm_80"
        best = min(known, key=lambda schedule: 0.0 if portable else cls._seconds(descriptor, schedule))
        return replace(row, sku=replace(row.sku, schedule=best)), layouts

    @classmethod
    def shape_text(cls, argument: Argument) -> str:
        """The dims along its axes."""
        return f"[{', '.join([dim for (dim,) in cls.AXES[argument.name]])}]"

    @classmethod
    def dims_text(cls) -> str:
        """The fields that dims come from."""
        dims: dict[str, str] = cls.DESCRIPTOR._dims
        return f"{', '.join([f'{dim} is {text}' for dim, text in dims.items()])};\n"

    @classmethod
    def shapes_of(cls, descriptor: M) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The shape of each argument."""
        space = IndexSpace.of(descriptor)
        return {name: (space.shape_of(cls.AXES[name]),) for name in cls.ARGUMENTS}

    @classmethod
    def sizes_of(cls, descriptor: M) -> Sizes:
        """The extents of the product."""
        space = IndexSpace.of(descriptor)
        return Sizes(*(space.size(cls.DIMS[role]) if role in cls.DIMS else 1 for role in Sizes._fields))

    @classmethod
    def _usual_sizes(cls, descriptor: M) -> Sizes:
        """The extents of one matrix, for the model, where matrices have equal parts."""
        sizes = cls.sizes_of(descriptor)
        if cls.SPAN is None or not cls.SPAN[2]:
            return sizes
        of = cls.SPAN[1]
        return sizes._replace(**{of: -(-int(getattr(sizes, of)) // max(sizes.batch, 1))})

    @classmethod
    def _is_empty(cls, sizes: Sizes) -> bool:
        """Whether the result has no elements."""
        return (sizes._replace(batch=1) if cls._shares_rows() else sizes).is_empty

    @classmethod
    def _tiles(cls, sizes: Sizes, schedule: Schedule) -> int:
        """How many tiles a result has at most."""
        if not cls._shares_rows():
            return tiles(sizes, schedule)
        begun = min(sizes.batch + 1, sizes.rows)  # tiles that are not full
        return tiles(sizes._replace(batch=1), schedule) + begun * tiles(sizes._replace(batch=1, rows=1), schedule)

    @classmethod
    def schedules(cls) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        """Architecture, element types and text of each schedule; warpgroups do not alternate where tiles differ."""
        return tuple(row for row in SCHEDULES if cls.SPAN is None or "alternate1" not in row[2])

    @classmethod
    def _seconds(cls, descriptor: M, schedule: Schedule) -> float:
        """How long a product takes by the model."""
        element = ElementKind(descriptor.element)
        written = next(argument for argument in cls.ARGUMENTS.values() if argument.written)
        factor, result = cls.multiplied(element)[0], written.elements(element)[0]
        return seconds(cls._usual_sizes(descriptor), schedule, factor.row.bytes, result.row.bytes)

    @classmethod
    def cannot_hold(cls, descriptor: M, sku: KernelSku) -> str | None:
        """Sums of whole numbers are of 32 bits."""
        if cls.PASS_PLANS:
            products = [of for of in cls._pass_plans(descriptor) if issubclass(of, MatmulPlan)]
            return next(filter(None, [of.cannot_hold(descriptor, sku) for of in products]), None)
        kinds = [cls.ARGUMENTS[name].elements(sku.element) for name in cls.FACTORS]
        largest = math.prod([max(_LARGEST_OF.get(kind, 0) for kind in of) for of in kinds])
        most = _SUM // largest if largest else math.inf
        if (depth := cls.sizes_of(descriptor).depth) <= most:
            return None
        return f"a sum of {depth} products of {kinds[0][-1]} and {kinds[1][-1]} may not fit 32 bits; {most} do"

    @classmethod
    def _candidates(cls, descriptor: M) -> tuple[Registered, ...]:
        """Kernels of later architectures first, in the order of the time that they take by the model."""

        def place(row: Registered) -> tuple[bool, float]:
            is_portable = row.sku.arch == "sm_80"
            assert isinstance(row.sku.schedule, Schedule)
            return is_portable, 0.0 if is_portable or cls.PASSES else cls._seconds(descriptor, row.sku.schedule)

        return tuple(sorted(super()._candidates(descriptor), key=place))

    @classmethod
    def _refusal(cls, descriptor: M, sku: KernelSku, preference: PlanPreference, device: Device | None) -> str | None:
        target = device or default_device()
        if target.arch == "host" and sku.arch != "sm_80" and not preference.archs:
            return "portable kernels are the host device's own"
        return super()._refusal(descriptor, sku, preference, target)

    @classmethod
    def _parts_bytes(cls, descriptor: M, sku: KernelSku) -> list[int]:
        """Bytes of a copy of each factor that the copy engine cannot address where it has no gaps; else 0.

        Its rows begin at no multiples of 16 bytes, or are not along the depth, as those of bytes must be.
        """
        if sku.arch != "sm_90a" or cls._is_empty(cls.sizes_of(descriptor)):
            return [0, 0]
        space, sizes = IndexSpace.of(descriptor), []
        for name in cls.FACTORS:
            size = cls.ARGUMENTS[name].elements(sku.element)[0].row.bytes
            *outer, inner = (space.size(dim) for dim in cls._inner_last(name))
            rows, turned = math.prod(outer), cls.AXES[name][-1] != (cls._inner_last(name)[-1],)
            needed = rows > 1 and (turned or inner * size % VECTOR_BYTES)
            sizes.append(rounded(rows * _whole(inner, size) * size) if needed else 0)
        return sizes

    @classmethod
    def _inner_last(cls, name: str) -> list[str]:
        """The dims of a factor as copies have them: a batch comes first, the rest is in the order of its axes.

        The depth of bytes comes last.
        """
        batch, depth = cls.DIMS.get("batch"), cls.DIMS["depth"] if cls.LAYOUTS == cls.LAYOUTS_OF_BYTES else ""
        return sorted((dim for (dim,) in cls.AXES[name]), key=lambda dim: (dim != batch, dim == depth))

    def depth_of(self, dims: Collection[str], count: int) -> float:
        """The error of a sum of `count` products in roundoffs of the accumulator.

        An instruction adds 16 products of halves and truncates; f32 takes three products of tf32, f64 rounds each term.
        One of 8-bit floats cuts 32 products and the sum off 13 bits below the largest, and what that gives to 14 bits;
        sums of 128 products are rounded to f32.
        """
        if in_passes := self._depth_in_passes(dims, count):
            return in_passes
        if self.math_of(self.element, self.sku.arch) == "f8":
            part = min(count, _PART)
            return (part + 2 * -(-part // 32)) * 2.0 ** (24 - 13) + -(-count // _PART)
        if self.element == ElementKind.F64:
            return count + 4
        return count + 12 if self.element == ElementKind.F32 else count / 4 + 8

    @cached_property
    def _sizes(self) -> Sizes:
        return self.sizes_of(self.descriptor)

    @cached_property
    def _operands(self) -> tuple[str, ...]:
        """The arguments that are more than a number."""
        return tuple(name for name, argument in self.ARGUMENTS.items() if self.AXES[name] or argument.written)

    @cached_property
    def _result(self) -> str:
        """The first output that is there."""
        written = [name for name, argument in self.ARGUMENTS.items() if argument.written]
        return next((name for name in written if self.present(name)), written[0])

    @property
    def _has_tma(self) -> bool:
        return self.sku.arch == "sm_90a"

    @cached_property
    def _itemsize(self) -> int:
        """Bytes of an element of a factor."""
        return self.multiplied(self.element)[0].row.bytes

    @cached_property
    def _strided(self) -> _Variant:
        """What takes any strides: sums of 8-bit floats are those of wgmma, which no other instruction gives."""
        copied = self._has_tma and self.multiplied(self.element)[0] in FLOATS_OF_A_BYTE
        return _Variant("strided", tma=False, copied=copied)

    def _variants(self) -> Iterator[_Variant]:
        if self._passes:
            return
        for layout in self.LAYOUTS:
            if layout in self.layouts:
                tma = self._has_tma and layout != "strided"
                yield _Variant(layout, tma) if layout != "strided" else self._strided
                if tma and any(element.row.bytes == _HALF for element in self.elements_of(self._result)):
                    yield _Variant(layout, tma, staged=True)
        for side, size in zip(_PACKED, self._parts_bytes(self.descriptor, self.sku), strict=True):
            if size and "strided" in self.layouts:
                yield _Variant("strided", tma=False, packs=side)

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

    def _is_stored(self, variant: _Variant, types: tuple[ElementKind, ...]) -> bool:
        """Whether a result of these types can be stored so."""
        chosen = dict(zip(self.CHOSEN, types, strict=True))
        element = chosen.get(self._result) or self.elements_of(self._result)[0]
        return not variant.staged or element.row.bytes == _HALF

    def _schedule(self, variant: _Variant) -> Schedule:
        own = variant.tma or variant.copied or not self._has_tma
        schedule = self.sku.schedule if own else Schedule.parse(PORTABLE[self.multiplied(self.element)[0]])
        assert isinstance(schedule, Schedule)
        return schedule

    def _source(self, variant: _Variant, types: tuple[ElementKind, ...]) -> KernelSource:
        source = self._sources.get((variant, types))
        if source is None:
            layout, schedule = _LAYOUTS[variant.layout], self._schedule(variant)
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
                    "STAGED": int(variant.staged),
                    "LEFT_SIDE": int(layout.left_side),
                    "RIGHT_SIDE": int(layout.right_side),
                    "STRIDED": int(layout.strided),
                    "PACK": _PACKED.index(variant.packs) + 1 if variant.packs else 0,
                    **({"PACK_SIDE": int(self._packs_side(variant.packs))} if variant.packs else {}),
                    "LEFT": f"{left}_",
                    "RIGHT": f"{right}_",
                    "RESULT": f"{self._result}_",
                    **self._span_constants,
                    **({"CLUSTER": cluster} if cluster > 1 else {}),
                    **self._kind,
                    **self._number,
                },
                present={a.name: self.present(a.name) for a in self.ARGUMENTS.values() if a.optional},
                types=dict(zip(self.CHOSEN, types, strict=True)),
                kernel="_".join(filter(None, (self._name, variant.packs and f"pack_{variant.packs}"))),
                shared=0 if variant.packs else shared_bytes(schedule, self._itemsize, tma=panels),
            )
        return source

    @cached_property
    def _span_constants(self) -> dict[str, str | int]:
        """What parts matrices have, if they have parts."""
        if self.SPAN is None:
            return {}
        ends, of, segments = self.SPAN
        return {"SPAN": of.upper(), "SEGMENTS": int(segments), "ENDS": f"{ends}_"}

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        if self._passes:
            return self._in_passes(views, workspace or VECTOR_BYTES)  # any address, where nothing is launched
        if self._is_empty(self._sizes) or self._result not in views:
            return []
        types = tuple(views[n].element if n in views else self.elements_of(n)[0] for n in self.CHOSEN)
        device, given, (views, copies) = self._device_of(views), views, self._copied(views, workspace)
        variant = self._variant(views)
        schedule = self._schedule(variant)
        cluster, count = dict(schedule.numbers).get("cluster", 1), self._tiles(self._sizes, schedule)
        most = max(1, device.multiprocessors // cluster) if variant.tma or variant.copied else 2**31 - 1
        grid = (min(count, most) * cluster, 1, 1)
        launches = [self._copying(given, types, packs, place) for packs, place in copies]
        words = self._words(views, variant)
        return [*launches, Launch(self._source(variant, types), grid, schedule.threads, words)]

    def _copied(self, views: Views, workspace: int) -> tuple[Views, list[tuple[str, int]]]:
        """The arrays with copies of factors, where these help the copy engine, and which are to be made where."""
        sizes = self._parts_bytes(self.descriptor, self.sku)
        if not any(sizes) or "strided" not in self.layouts or self._variant(views).tma:
            return views, []
        known, copies, workspace = dict(views), [], workspace or VECTOR_BYTES  # any address, where nothing is launched
        for name, packs, size in zip(self.FACTORS, _PACKED, sizes, strict=True):
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
            step = step * extents[dim] if step > 1 else _whole(extents[dim], view.element.row.bytes)
        return view._replace(pointer=place, strides=tuple(strides[dim] for dim in axes), capacity=None, owner=None)

    def _packs_side(self, packs: str) -> bool:
        """Whether the inner axis of a copy is the factor's side, not the depth."""
        return self._inner_last(self.FACTORS[_PACKED.index(packs)])[-1] != self.DIMS["depth"]

    def _copying(self, views: Views, types: tuple[ElementKind, ...], packs: str, place: int) -> Launch:
        variant = _Variant("strided", tma=False, packs=packs)
        threads, name = self._schedule(variant).threads, self.FACTORS[_PACKED.index(packs)]
        *outer, _ = (self._sizes_of_dims[dim] for dim in self._inner_last(name))
        blocks = min(_COPYING_BLOCKS, -(-math.prod(outer) * _WARP // threads))
        words = self._words(views, variant, place)
        return Launch(self._source(variant, types), (blocks, 1, 1), threads, words)

    @cached_property
    def _sizes_of_dims(self) -> dict[str, int]:
        space = IndexSpace.of(self.descriptor)
        return {dim: space.size(dim) for dim in self.DIMS.values()}

    def _variant(self, views: Views) -> _Variant:
        """The strictest layout that the factors keep to, of those that this plan accepts."""
        for name, layout in _LAYOUTS.items():
            if name in self.layouts and not layout.strided:
                if self._has_tma and self._maps(views, layout, staged=False) is not None:
                    return _Variant(name, tma=True, staged=self._maps(views, layout, staged=True) is not None)
                if not self._has_tma and self._is_packed(views, layout):
                    return _Variant(name, tma=False, staged=False)
        if "strided" in self.layouts:
            return self._strided
        raise self._other_layout("strided")

    def _along(self, views: Views, name: str, *dims: str) -> TensorView:
        """An argument with one axis for each of these roles, of extent 1 where it has none."""
        view, axes = views[name], [dim for (dim,) in self.AXES[name]]
        places = [axes.index(self.DIMS[role]) if self.DIMS.get(role) in axes else None for role in dims]
        shape = tuple(1 if place is None else view.shape[place] for place in places)
        strides = tuple(0 if place is None or view.shape[place] == 1 else view.strides[place] for place in places)
        return view._replace(shape=shape, strides=strides)

    def _factors(self, views: Views, layout: _Layout) -> Iterator[tuple[TensorView, bool]]:
        """Both factors as the layout has them, the contiguous axis last, and whether that is their side."""
        for name, side, is_side in zip(self.FACTORS, _SIDES, layout, strict=False):
            order = ("batch", "depth", side) if is_side else ("batch", side, "depth")
            yield self._along(views, name, *order), is_side

    def _is_packed(self, views: Views, layout: _Layout) -> bool:
        """Whether both factors are whole packs of 16 bytes along their contiguous axes."""
        vec = VECTOR_BYTES // self._itemsize
        for view, _ in self._factors(views, layout):
            *outer, inner = view.strides
            unit = inner == 1 or view.shape[-1] == 1
            if not unit or view.shape[-1] % vec or view.pointer % VECTOR_BYTES or any(s % vec for s in outer):
                return False
        return True

    def _maps(self, views: Views, layout: _Layout, *, staged: bool) -> list[tuple[TensorView, tuple[int, int]]] | None:
        """What the copy engine moves, each with its box of rows and columns; None if it cannot."""
        from ...devices.tensor_map import cannot_map

        schedule = self.sku.schedule
        assert isinstance(schedule, Schedule)
        numbers = dict(schedule.numbers)
        tall, wide, cluster, swapped = (numbers[name] for name in ("block_m", "block_n", "cluster", "swapped"))
        # Of the instruction's first factor and of its second, which blocks of a cluster load for each other.
        first, second = (tall, 64), (wide // cluster, 64 // cluster)
        depth = PANEL // self._itemsize
        along_depth_and_side = (second, first) if swapped else (first, second)
        factors = zip(self._factors(views, layout), along_depth_and_side, strict=True)
        maps = [(view, (rows[is_side], depth)) for (view, is_side), rows in factors]
        if staged:
            result = self._along(views, self._result, "batch", "rows", "columns")
            if result.element.row.bytes != _HALF or result.shape[-1] * _HALF % VECTOR_BYTES:
                return None  # it stores whole words: an H100 wrote an element beside rows of odd length
            maps.append((result, (wide if swapped else 64, 64)))
        counted = max(*self._sizes, self._tiles(self._sizes, schedule))
        return None if counted > _LARGEST or any(cannot_map(view, "a factor") for view, _ in maps) else maps

    def _words(self, views: Views, variant: _Variant, copy: int = 0) -> array[int]:
        words = array("q")
        if variant.tma:
            from ...devices.tensor_map import encode

            maps = self._maps(views, _LAYOUTS[variant.layout], staged=variant.staged)
            if maps is None:
                raise Unsupported(f"{type(self).__name__}: the copy engine cannot address the arrays")
            for view, box in maps:
                words.extend(encode(view, box))
            words.extend([0] * (_MAP_WORDS * (3 - len(maps))))
        words.extend(self._sizes)
        for name in self._operands:
            side = dict(zip(self.FACTORS, _SIDES, strict=True)).get(name)
            roles = ("batch", side, "depth") if side else ("batch", "rows", "columns")
            words.extend(self._along(views, name, *roles).strides if name in views else (0, 0, 0))
        if variant.tma:  # what the arguments begin with is aligned as maps are
            words.extend([0] * (-len(words) % _STRUCT_WORDS))
        words.extend(views[name].pointer if name in views else 0 for name in self.ARGUMENTS)
        space = IndexSpace.of(self.descriptor)
        words.extend(space.size(dim) for dim in self.SIZES)
        words.extend(self._words_of(self.SCALARS))
        words.append(copy)
        if variant.tma:
            words.extend([0] * (-len(words) % _STRUCT_WORDS))
        return words


def matmul_kernels(
    plan: type[MatmulPlan[Any]],
    *,
    contraction: bool = False,
    flush_subnormals: bool = False,
    inline: str | None = None,
) -> Iterator[Registered]:
    """A row of the kernel table for each of the family's schedules and each of the op's element types.

    Of several passes there is one for each architecture, whose products choose among the schedules for themselves.
    `inline` is the text of the kernels, where there is no file of it.
    """
    source = plan.source_file(inline, contraction, flush_subnormals)
    of_passes = [(arch, MULTIPLIED[arch], text) for arch, text in OF_PASSES]
    for arch, tags, text in of_passes if plan.PASSES else plan.schedules():
        for element in map(ElementKind, sorted(plan.DESCRIPTOR._elements, key=_ORDER.index)):
            if all(kind in tags for kind in plan.multiplied(element)):
                guarantee = plan.promised_of(element, plan.math_of(element, arch))
                yield Registered(plan.sku_of(element, arch, guarantee, Schedule.parse(text)), source)
