"""How a kernel of the matmul family is chosen: what plans multiply, and the time that schedules take by the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from ...arrays.arguments import Argument
from ...arrays.element import ElementKind
from ...arrays.workspace import rounded
from ...device import Device
from ...devices.named import default_device
from ...plans.preference import PlanPreference
from ...plans.registry import KernelRows, Registered
from ...plans.schedule import Schedule
from ...plans.sku import SPLIT, VECTOR_BYTES, KernelSku
from ..map.geometry import IndexSpace, MapDescriptor
from ..map.passed import PassedPlan
from ..map.plan import MapPlan
from .matmul_pass import MatmulPass
from .schedules import (
    BAND,
    BYTES,
    FLOATS_OF_A_BYTE,
    IN_PARTS,
    OF_PASSES,
    PART,
    ROUNDED,
    SCHEDULES,
    WHOLE_OF_A_BYTE,
    Sizes,
    Split,
    seconds,
    takes_pairs,
    tiles,
)
from .variants import LAYOUTS, fits_span, whole

# What factors are multiplied as: floats of a byte as halves, where no instruction keeps f32 of their sums.
_MATH = {"f16": "T", "bf16": "T", "f32": "tf32x3", "f64": "acc", "i8": "i8", "u8": "i8"}
_FLOATS_OF_A_BYTE = {"sm_90a": "f8", "sm_80": "f16"}
_ORDER = ("f16", "bf16", "f32", "f64", *WHOLE_OF_A_BYTE)  # of kernels of a schedule
_PART = 128  # of the depth: what sums of floats of a byte are made of, with instructions that take 32
# Roundings of a term of a part: 8 of half a thread's columns, 3 of halves and a quad, and those of the factor by which
# a sum of exponentials is scaled. Of a band: 2 of a thread's rows, and 3 of eight threads.
_DEPTH_OF_PART, _DEPTH_OF_BAND = 8 + 3 + 8, 2 + 3
_LARGEST_OF, _SUM = {ElementKind.I8: 128, ElementKind.U8: 255}, 2**31 - 1

M = TypeVar("M", bound=MapDescriptor)


class MatmulSelection(PassedPlan[M]):
    """What plans of the matmul family do before there is a plan, and what their kernels promise."""

    LAYOUTS: ClassVar[tuple[str, ...]] = tuple(LAYOUTS)
    LAYOUTS_OF_PASSES: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys((*LAYOUTS, *MapPlan.LAYOUTS)))
    LAYOUTS_OF_BYTES: ClassVar[tuple[str, ...]] = ("kk", "strided")  # that instructions take
    FACTORS: ClassVar[tuple[str, str]] = ("", "")  # the left and the right one
    SECOND: ClassVar[str] = ""  # another right factor, which multiplies the left one, too
    DIMS: ClassVar[Mapping[str, str]] = {}  # "batch", "rows", "columns", "depth" -> dim; there may be no batch
    SIZES: ClassVar[tuple[str, ...]] = ()  # dims whose size the program reads
    SCALARS: ClassVar[tuple[str, ...]] = ()  # descriptor fields the kernel reads
    # The array that says which "rows" or how much "depth" each matrix has, and whether these parts follow each other.
    SPAN: ClassVar[tuple[str, str, bool] | None] = None
    # What parts of a sum are multiplied with: along each axis one of DIMS, and how many places of it share an element.
    WEIGHTS: ClassVar[Mapping[str, tuple[tuple[str, int], ...]]] = {}

    # The dims of parts of the columns and of bands of the rows that kernels reduce, or "".
    PART: ClassVar[str] = ""
    BAND: ClassVar[str] = ""

    @classmethod
    def _complete(cls, own: Mapping[str, Any]) -> None:
        super()._complete(own)
        if own.get("PASSES"):
            cls.LAYOUTS = cls.LAYOUTS_OF_PASSES
        elif cls._takes_bytes():
            cls.LAYOUTS = cls.LAYOUTS_OF_BYTES
        if cls.SPAN and not own.get("PASSES"):
            cls.LAYOUTS = tuple(name for name in cls.LAYOUTS if fits_span(LAYOUTS[name], cls.SPAN))

    @classmethod
    def _shares_rows(cls) -> bool:
        """Whether each row is of one matrix."""
        return cls.SPAN is not None and cls.SPAN[1:] == ("rows", True)

    @classmethod
    def _turns(cls) -> bool:
        """Whether some tiles of a cluster are beside each other: matrices have parts of the rows."""
        return cls.SPAN is not None and cls.SPAN[1] == "rows"

    @classmethod
    def _written(cls) -> list[str]:
        """What kernels store, elements first."""
        written = [name for name, argument in cls.ARGUMENTS.items() if argument.written]
        return sorted(written, key=cls._is_reduced)

    @classmethod
    def _is_reduced(cls, name: str) -> bool:
        """Whether an array has what kernels reduce of parts."""
        return any((dim,) in cls.AXES[name] for dim in (cls.PART, cls.BAND) if dim)

    @classmethod
    def _takes_bytes(cls) -> bool:
        """Whether factors are of 8 bits, whatever the element type."""
        elements = cls.DESCRIPTOR._elements
        return all(kind in BYTES for tag in elements for kind in cls.multiplied(ElementKind(tag)))

    @classmethod
    def multiplicands(cls) -> tuple[str, ...]:
        """The left factor and all that multiply it."""
        return (*cls.FACTORS, *((cls.SECOND,) if cls.SECOND else ()))

    @classmethod
    def multiplied(cls, element: ElementKind) -> tuple[ElementKind, ...]:
        """The types that factors may have, all of one kind; of several passes, those of all products."""
        products = [of for of in cls.PASS_PLANS if issubclass(of, MatmulSelection)] if cls.PASS_PLANS else [cls]
        of = [cls_.ARGUMENTS[name] for cls_ in products for name in cls_.multiplicands() if name in cls_.ARGUMENTS]
        return tuple(dict.fromkeys(kind for argument in of for kind in argument.elements(element)))

    @classmethod
    def math_of(cls, element: ElementKind, arch: str) -> str:
        """What the kernels of `arch` multiply factors as, as `PrecisionGuarantee.of` has it."""
        kind, *_ = cls.multiplied(element)
        return _FLOATS_OF_A_BYTE[arch] if kind in FLOATS_OF_A_BYTE else _MATH[kind]

    @classmethod
    def math_among(cls, tags: Collection[str], element: ElementKind, arch: str) -> str | None:
        """What a schedule of these factors multiplies as; None if it does not multiply the op's."""
        kinds = cls.multiplied(element)
        if ROUNDED in tags:
            return ROUNDED if {*kinds} == {ElementKind.F32} else None
        return cls.math_of(element, arch) if all(kind in tags for kind in kinds) else None

    @classmethod
    def tag_of(cls, sku: KernelSku) -> str:
        """The factors of a kernel, as schedules have them."""
        kind, *_ = cls.multiplied(sku.element)
        is_rounded = sku.precision_guarantee.math_precision == ROUNDED and kind == ElementKind.F32
        return ROUNDED if is_rounded else kind

    @classmethod
    def of_pass(cls, plan: type[Any], declared: MatmulPass) -> dict[str, Any]:
        """Where its arrays lie, and what it sums over."""
        axes = {name: plan.AXES[name] for name in (*declared.reads, *declared.writes)}
        assert declared.dims is not None
        depth = declared.dims["depth"]
        # What is handed over is contiguous along its last axis.
        factors = (*declared.factors, *((declared.second,) if declared.second else ()))
        held = [place for place, name in enumerate(factors) if name in plan.HELD]
        sides = {min(place, 1): axes[factors[place]][-1] != (depth,) for place in held}
        fit = [n for n, of in LAYOUTS.items() if of.strided or all(of[place] == side for place, side in sides.items())]
        of_bytes = any(argument.dtypes[0] in BYTES for argument in plan.TENSORS if argument.name in declared.factors)
        fit = [*cls.LAYOUTS_OF_BYTES] if of_bytes else fit
        of_span = [name for name in fit if declared.span is None or fits_span(LAYOUTS[name], declared.span)]
        return {"AXES": axes, "SUMMED": (depth,), "LAYOUTS": tuple(of_span)}

    @classmethod
    def within(cls, descriptor: M, row: Registered, layouts: frozenset[str]) -> tuple[Registered, frozenset[str]]:
        """The row with the schedule that takes the least time by the model, and what of the layouts products have."""
        row, layouts = super().within(descriptor, row, layouts)
        tag = cls.tag_of(row.sku)
        known = [Schedule.parse(text) for arch, tags, text in cls.schedules() if arch == row.sku.arch and tag in tags]
        portable = row.sku.arch == "sm_80"
        best = known[0] if portable else min(known, key=cls._seconds(descriptor))
        return replace(row, sku=replace(row.sku, schedule=best)), layouts

    @classmethod
    def shape_text(cls, argument: Argument) -> str:
        """The dims along its axes."""
        return f"[{', '.join([dim for (dim,) in cls.AXES[argument.name]])}]"

    @classmethod
    def dims_text(cls) -> str:
        """The fields that dims of arguments come from."""
        listed = {dim for name in cls.ARGUMENTS for (dim,) in cls.AXES[name]}
        dims = {dim: text for dim, text in cls.DESCRIPTOR._dims.items() if dim in listed}
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
        of = partial(tiles, schedule=schedule, turns=cls._turns(), paired=bool(cls.SECOND))
        if not cls._shares_rows():
            return of(sizes)
        begun = min(sizes.batch + 1, sizes.rows)  # tiles that are not full
        return of(sizes._replace(batch=1)) + begun * of(sizes._replace(batch=1, rows=1))

    @classmethod
    def schedules(cls) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        """Architecture, element types and text of each schedule.

        Warpgroups do not alternate where tiles differ; rows of a tile are rows where these are reduced; a pair of
        products has a multiple of 64 columns of each.
        """
        without = {"alternate1"} if cls.SPAN else {"swapped1"} if cls.PART or cls.BAND else set[str]()
        rows = [row for row in SCHEDULES if not any(word in row[2] for word in without)]
        return tuple(row for row in rows if not cls.SECOND or takes_pairs(Schedule.parse(row[2])))

    @classmethod
    def _in_parts(cls) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        """Likewise, of sums in parts of the depth: of one product of whole matrices, which nothing reduces."""
        is_plain = not (cls.SPAN or cls.WEIGHTS or cls.SECOND or cls.PART or cls.BAND or cls._takes_bytes())
        return IN_PARTS if is_plain else ()

    @classmethod
    def split_of(cls, descriptor: M, schedule: object) -> Split | None:
        """The parts of the depth, where a schedule has sums of parts."""
        is_split = isinstance(schedule, Schedule) and SPLIT in dict(schedule.numbers)
        return Split.of(cls.sizes_of(descriptor), cls._itemsize_of(descriptor)) if is_split else None

    @classmethod
    def _itemsize_of(cls, descriptor: M) -> int:
        """Bytes of an element of a factor."""
        return cls.multiplied(ElementKind(descriptor.element))[0].row.bytes

    @classmethod
    def workspace_of(cls, descriptor: M, sku: KernelSku) -> int:
        """Bytes of what passes hand over, of copies of factors, and of sums of parts."""
        split, size = cls.split_of(descriptor, sku.schedule), ElementKind(sku.element.row.acc).row.bytes
        of_parts = math.prod(split.sizes(cls.sizes_of(descriptor))[:3]) * size if split else 0
        return super().workspace_of(descriptor, sku) + rounded(of_parts)

    @classmethod
    def _seconds(cls, descriptor: M) -> Callable[[Schedule], float]:
        """How long a product takes by the model, with each schedule."""
        element = ElementKind(descriptor.element)
        stored = [cls.ARGUMENTS[name] for name in cls._written() if not cls._is_reduced(name)]
        factor = cls.multiplied(element)[0].row.bytes
        sizes, result = cls._usual_sizes(descriptor), stored[0].elements(element)[0].row.bytes if stored else 0
        turns, paired = cls._turns(), bool(cls.SECOND)

        def of(schedule: Schedule) -> float:
            split = cls.split_of(descriptor, schedule)
            own = split.sizes(sizes) if split else sizes
            return seconds(own, schedule, factor, result, turns=turns, paired=paired)

        return of

    @classmethod
    def cannot_hold(cls, descriptor: M, sku: KernelSku) -> str | None:
        """Sums of whole numbers are of 32 bits; a sum in parts has several."""
        if cls.PASS_PLANS:
            products = [of for of in cls._pass_plans(descriptor) if issubclass(of, MatmulSelection)]
            return next(filter(None, [of.cannot_hold(descriptor, sku) for of in products]), None)
        if (split := cls.split_of(descriptor, sku.schedule)) and split.parts == 1:
            return "adds up parts of sums, of which this problem has one"
        kinds = [cls.ARGUMENTS[name].elements(sku.element) for name in cls.FACTORS]
        largest = math.prod([max(_LARGEST_OF.get(kind, 0) for kind in of) for of in kinds])
        most = _SUM // largest if largest else math.inf
        if (depth := cls.sizes_of(descriptor).depth) <= most:
            return None
        return f"a sum of {depth} products of {kinds[0][-1]} and {kinds[1][-1]} may not fit 32 bits; {most} do"

    @classmethod
    def _candidates(cls, descriptor: M) -> tuple[Registered, ...]:
        """Kernels of later architectures first, those of sums in parts before others where the depth is long, else
        behind them, in the order of the time that they take by the model."""
        taken = (lambda _: 0.0) if cls.PASSES else cls._seconds(descriptor)

        def place(row: Registered) -> tuple[bool, bool, bool, float]:
            is_portable = row.sku.arch == "sm_80"
            assert isinstance(row.sku.schedule, Schedule)
            split = cls.split_of(descriptor, row.sku.schedule)
            is_slow = split is not None and not split.is_fast(cls.sizes_of(descriptor), cls._itemsize_of(descriptor))
            is_whole = split is None
            return is_portable, is_slow, is_whole, 0.0 if is_portable else taken(row.sku.schedule)

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
            return [0] * len(cls.multiplicands())
        space, sizes = IndexSpace.of(descriptor), []
        for name in cls.multiplicands():
            size = cls.ARGUMENTS[name].elements(sku.element)[0].row.bytes
            *outer, inner = (space.size(dim) for dim in cls._inner_last(name))
            rows, turned = math.prod(outer), cls.AXES[name][-1] != (cls._inner_last(name)[-1],)
            needed = rows > 1 and (turned or inner * size % VECTOR_BYTES)
            sizes.append(rounded(rows * whole(inner, size) * size) if needed else 0)
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

        An instruction adds 16 products of halves, or 8 of tf32, and truncates; f32 takes three of tf32, if it is not
        rounded to that; f64 rounds each term.
        One of 8-bit floats cuts 32 products and the sum off 13 bits below the largest, and what that gives to 14 bits;
        sums of 128 products are rounded to f32, as are those that have weights everywhere.
        """
        if in_passes := max([self._depth_in_passes(dims, count), *self._depths_in_parts(dims, count)]):
            return in_passes
        if split := self.split_of(self.descriptor, self.sku.schedule):
            return self._depth_in_order(min(count, split.terms)) + split.parts - 1
        return self._depth_in_order(count)

    def _depth_in_order(self, count: int) -> float:
        """That of a sum in the order of the depth."""
        if self.math_of(self.element, self.sku.arch) == "f8":
            part = min(count, _PART)
            return (part + 2 * -(-part // 32)) * 2.0 ** (24 - 13) + -(-count // _PART)
        if self.element == ElementKind.F64:
            return count + 4
        if self.WEIGHTS:
            return min(count, _PART) / 4 + 8 + -(-count // _PART)
        if self.tag_of(self.sku) == ROUNDED:
            return count / 2 + 8
        return count + 12 if self.element == ElementKind.F32 else count / 4 + 8

    def _depths_in_parts(self, dims: Collection[str], count: int) -> Iterator[float]:
        """The roundings of a term of what products reduce in parts, and passes of maps add up."""
        for of in self._passes:
            if isinstance(of, MatmulSelection):
                sides = (of.PART, "columns", PART, _DEPTH_OF_PART), (of.BAND, "rows", BAND, _DEPTH_OF_BAND)
                for part, side, size, depth in sides:
                    if part and {*dims} == {of.DIMS[side]}:
                        yield depth + self._depth_in_passes((part,), -(-count // size))


def matmul_kernels(
    plan: type[MatmulSelection[Any]],
    *,
    contraction: bool = False,
    flush_subnormals: bool = False,
    inline: str | None = None,
) -> KernelRows:
    """A row of the kernel table for each of the family's schedules and each of the op's element types.

    Of several passes there is one for each architecture, and one that rounds, whose products choose among the schedules
    for themselves.
    `inline` is the text of the kernels, where there is no file of it.
    """
    source = plan.source_file(inline, contraction, flush_subnormals)

    def make(elements: Collection[str]) -> Iterator[Registered]:
        for arch, tags, text in OF_PASSES if plan.PASSES else (*plan.schedules(), *plan._in_parts()):
            for element in map(ElementKind, sorted(elements, key=_ORDER.index)):
                if math := plan.math_among(tags, element, arch):
                    sku = plan.sku_of(element, arch, plan.promised_of(element, math), Schedule.parse(text))
                    lacking: dict[str, Any] = dict.fromkeys(sku.asked.get("waives", ()), False)
                    promised = replace(sku.precision_guarantee, **lacking)
                    yield Registered(replace(sku, precision_guarantee=promised), source)

    return KernelRows(plan, make)
