"""Plans of the list family: a program on each element of the arrays of some lists, hundreds of arrays a launch."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import accumulate, product
from typing import Any, ClassVar, TypeVar

from ...arrays.arguments import Argument, Views, check, take
from ...arrays.element import ElementKind
from ...arrays.tensor import TensorView, view
from ...arrays.workspace import Workspace
from ...device import KernelSource
from ...errors import InvalidProblem
from ...plans.formula import ceil_div
from ...plans.plan import Arrays, Launch, Stream
from ...plans.prepared import BoundLaunch
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES, KernelSku
from ..kernel_source import kernel_source
from ..map.geometry import MapDescriptor
from ..map.map_pass import MapPass
from ..map.passed import PassedPlan
from .intake import Spread, arguments_of, columns, combined, flattened, is_list, spread

MOST_LISTS = 8
# Bytes of arguments that every driver takes, and that those of CUDA 12.1 on do: what is left to the tables of arrays.
_TABLES = (4096 - 512, 32760 - 512)
_PART_BYTES = 64  # of a block's part of a reduction: at most two compensated sums and a count
_FIRST, _OTHERS, _LAST = range(3)  # what launches of a pass that reduces do

M = TypeVar("M", bound=MapDescriptor)


class ListPlan(PassedPlan[M]):
    """Everything that a generated plan of the list family does not declare.

    An argument that is a list takes a list or tuple of arrays, as many as each other list has, the i-th ones of one
    shape and the same dense strides; or, where every argument does, one array of rank 1.
    """

    LAYOUTS: ClassVar[tuple[str, ...]] = ("dense",)
    LISTS: ClassVar[tuple[str, ...]]  # arguments that are lists of arrays: this follows from TENSORS
    SIZES: ClassVar[tuple[str, ...]] = ()  # the dim, if the program reads its size
    SCALARS: ClassVar[tuple[str, ...]] = ()  # descriptor fields the kernel reads

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.LISTS = tuple([a.name for a in cls.ARGUMENTS.values() if a.over == "list"])

    @classmethod
    def shape_text(cls, argument: Argument) -> str:
        """The dim of a list; an array has one value."""
        return f"[{', '.join(cls.DESCRIPTOR._dims) if argument.over == 'list' else ''}]"

    @classmethod
    def of_pass(cls, plan: type[Any], declared: MapPass) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def _elements(cls, descriptor: M) -> int:
        (field,) = descriptor._dims.values()
        elements: int = getattr(descriptor, field)
        return elements

    @classmethod
    def _most_blocks(cls, descriptor: M, sku: KernelSku) -> int:
        """Blocks of a reduction: no more than arrays could have chunks."""
        assert isinstance(sku.schedule, Schedule)
        return max(1, min(sku.schedule["blocks"] if cls.SUMS else 1, cls._elements(descriptor)))

    @classmethod
    def _parts_bytes(cls, descriptor: M, sku: KernelSku) -> list[int]:
        if not cls.SUMS:
            return []
        size = _PART_BYTES * cls._most_blocks(descriptor, sku)
        return [0 if flag and not getattr(descriptor, flag) else size for flag in cls.SUMS]

    def depth_of(self, dims: Collection[str], count: int) -> int:
        """The maximum number of roundings of a term of a sum: of pairs in a thread and of threads, and compensated."""
        schedule = self.sku.schedule
        assert isinstance(schedule, Schedule)
        pairs = schedule.threads * schedule.threads * schedule["packs"] * self._width
        return (pairs - 1).bit_length() + 9

    @classmethod
    def shapes_of(cls, descriptor: M) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The shape of each argument; of a list, that of all elements."""
        elements = (cls._elements(descriptor),)
        return {name: (elements if name in cls.LISTS else (),) for name in cls.ARGUMENTS}

    @classmethod
    def viewed(cls, array: object, name: str) -> TensorView:
        """A view of an argument; of a list, its number of elements, and the rest of its first array."""
        if name in cls.LISTS and is_list(array):
            return combined(array, name)
        return view(array, name)

    @classmethod
    def capacities(cls) -> tuple[int, ...]:
        """How many arrays a launch may have, for a few and for many."""
        return tuple([size // (8 * (len(cls.LISTS) + 2)) for size in _TABLES])

    def sources(self, *, dtypes: Mapping[str, ElementKind | str] | None = None) -> Iterator[KernelSource]:
        """The sources for few arrays and for many."""
        types = self._chosen_types(dtypes)
        for part, own in self._types_of(dict(zip(self.CHOSEN, types, strict=True))):
            yield from part.sources(dtypes=own)
        for capacity in () if self._passes else self.capacities():
            yield self._source(capacity, types)

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Every choice of element types, for few arrays and for many."""
        for part in self._passes:
            yield from part.variants()
        for types in () if self._passes else product(*(self.elements_of(name) for name in self.CHOSEN)):
            for capacity in self.capacities():
                yield self.LAYOUTS[0], dict(zip(self.CHOSEN, types, strict=True)), self._source(capacity, types)

    def _source(self, capacity: int, types: tuple[ElementKind, ...]) -> KernelSource:
        source = self._sources.get((capacity, types))
        if source is None:
            source = self._sources[capacity, types] = kernel_source(
                self._row,
                {"ARRAYS": capacity, "WALK": "ROWS" if self.SUMS else "CELLS", **self._number},
                present={a.name: self.present(a.name) for a in self.ARGUMENTS.values() if a.optional},
                types=dict(zip(self.CHOSEN, types, strict=True)),
                kernel=self._name,
            )
        return source

    # Where lists are passed, the rest of a plan sees their arrays one after another.

    def _run(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> None:
        super()._run(self._spread(arrays), workspace, stream)

    def _run_unchecked(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> None:
        super()._run_unchecked(self._spread(arrays), workspace, stream)

    def _bind(self, arrays: Arrays, workspace: Workspace, stream: Stream) -> BoundLaunch:
        return super()._bind(self._spread(arrays), workspace, stream)

    def _spread(self, arrays: Arrays) -> Arrays:
        if isinstance(arrays, Spread):
            return arrays
        with self._named:
            return spread(self.LISTS, self._by_name(arrays)) or arrays

    def _unchecked(self, arrays: Arrays) -> Views:
        if not isinstance(arrays, Spread):
            return super()._unchecked(arrays)
        with self._named:
            return self._flattened(arrays)

    def _checked(self, arrays: Arrays) -> Views:
        arrays = self._spread(arrays)
        if not isinstance(arrays, Spread):
            return super()._checked(arrays)
        with self._named:
            views = self._flattened(arrays)
            shapes = {name: (tensor.shape,) for name, tensor in views.items()} | self._shapes
            arguments = arguments_of(arrays.names, self.ARGUMENTS)
            check(arguments, arrays.names, views, shapes, self.present, self.element)
        return views

    def _flattened(self, arrays: Spread) -> Views:
        for name, given in arrays.by_name().items():
            of, _, place = name.partition("[")
            if given is not None and of in self._absent:
                raise InvalidProblem(f"{of!r} must be absent when {self.ARGUMENTS[of].optional}=False, got a list")
            if given is None and place:
                raise InvalidProblem(f"{name!r} is None; every array of a list must be there")
        views = take(self.ARGUMENTS, arrays.by_name(), ())
        lists = [names for of, names in columns(self.LISTS, views).items() if of not in views]
        return flattened(views, lists, self._shapes[self.LISTS[0]][0][0])

    def _views_of(self, views: Views) -> Views:
        """The arguments of a pass among those of all, arrays of lists included."""
        return {name: of for name, of in views.items() if name.partition("[")[0] in self.ARGUMENTS}

    @cached_property
    def _width(self) -> int:
        return VECTOR_BYTES // self.element.row.bytes

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        if self._passes:
            return self._in_passes(views, workspace)
        lists, schedule = columns(self.LISTS, views), self.sku.schedule
        assert isinstance(schedule, Schedule)
        firsts = {n: views[n] for n in views if n in self.ARGUMENTS} | {of: views[n[0]] for of, n in lists.items()}
        types = tuple([firsts[n].element if n in firsts else self.elements_of(n)[0] for n in self.CHOSEN])
        chunk = schedule.threads * schedule["packs"] * self._width
        sizes = [views[name].shape[0] for name in next(iter(lists.values()))]
        filled, (few, most) = [i for i, size in enumerate(sizes) if size], self.capacities()
        groups = [filled[at : at + most] for at in range(0, len(filled), most)] or [[]] * bool(self.SUMS)
        cuts = [[*accumulate([ceil_div(sizes[i], chunk) for i in group], initial=0)] for group in groups]
        blocks = min(self._most_blocks(self.descriptor, self.sku), max([1, *(chunks for *_, chunks in cuts)]))
        tail = self._tail(workspace)
        launches = []
        for turn, (group, (*first, chunks)) in enumerate(zip(groups, cuts, strict=True)):
            capacity = few if len(group) <= few else most
            words = array("q", (_OTHERS if turn else _FIRST, len(group), chunks, blocks))
            columns_of = {n: [views[names[i]].pointer for i in group] for n, names in lists.items()}
            for column in ([sizes[i] for i in group], first):
                words.extend((*column, *[0] * (capacity - len(column))))
            for name in self.ARGUMENTS:
                alone = firsts[name].pointer if name in firsts else 0
                column = columns_of.get(name, []) if name in self.LISTS else [alone]
                words.extend((*column, *[0] * (capacity - len(column) if name in self.LISTS else 0)))
            words.extend(tail)
            grid = (blocks if self.SUMS else chunks, 1, 1)
            launches.append(Launch(self._source(capacity, types), grid, schedule.threads, words))
        if self.SUMS:
            words = array("q", launches[-1].words)
            words[0] = _LAST
            launches.append(Launch(launches[-1].source, (1, 1, 1), schedule.threads, words))
        return launches

    def _tail(self, workspace: int) -> list[int]:
        """The words behind arrays: sizes, fields, and where each reduction has its parts."""
        words = [self._elements(self.descriptor) for _ in self.SIZES] + [*self._words_of(self.SCALARS)]
        for size in self._parts_bytes(self.descriptor, self.sku):
            words.append(workspace)
            workspace += size
        return words
