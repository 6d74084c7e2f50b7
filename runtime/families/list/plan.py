"""Plans of the list family: a program on each element of the arrays of some lists, hundreds of arrays a launch."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import accumulate, product
from typing import ClassVar, TypeVar

from ...arrays.arguments import Views, check, take
from ...arrays.element import ElementKind
from ...arrays.tensor import TensorView, view
from ...arrays.workspace import Workspace
from ...device import KernelSource, WatchedArray
from ...errors import InvalidProblem
from ...plans.formula import ceil_div
from ...plans.plan import Arrays, Launch, Plan, Stream
from ...plans.prepared import BoundLaunch
from ...plans.schedule import Schedule
from ...plans.sku import VECTOR_BYTES, KernelSku
from ..kernel_source import kernel_source
from ..map.geometry import MapDescriptor
from .intake import Spread, arguments_of, columns, combined, flattened, is_list, spread

MOST_LISTS = 8
# Bytes of arguments that every driver takes, and that those of CUDA 12.1 on do: what is left to the tables of arrays.
_TABLES = (4096 - 512, 32760 - 512)

M = TypeVar("M", bound=MapDescriptor)


class ListPlan(Plan[M]):
    """Everything that a generated plan of the list family does not declare.

    An argument that is a list takes a list or tuple of arrays, as many as each other list has, the i-th ones of one
    shape and the same dense strides; or, where every argument does, one array of rank 1.
    """

    LAYOUTS: ClassVar[tuple[str, ...]] = ("dense",)
    LISTS: ClassVar[tuple[str, ...]]  # arguments that are lists of arrays: this follows from TENSORS
    SCALARS: ClassVar[tuple[str, ...]] = ()  # descriptor fields the kernel reads

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.LISTS = tuple([a.name for a in cls.ARGUMENTS.values() if a.over == "list"])

    @classmethod
    def cannot_hold(cls, descriptor: M, sku: KernelSku) -> str | None:
        """None: every schedule serves every problem."""
        return None

    @classmethod
    def workspace_of(cls, descriptor: M, sku: KernelSku) -> int:
        """0: elements are independent."""
        return 0

    @classmethod
    def shapes_of(cls, descriptor: M) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The shape of each argument; of a list, that of all elements."""
        (field,) = descriptor._dims.values()
        elements = (getattr(descriptor, field),)
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
        for capacity in self.capacities():
            yield self._source(capacity, types)

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Every choice of element types, for few arrays and for many."""
        for types in product(*(self.elements_of(name) for name in self.CHOSEN)):
            for capacity in self.capacities():
                yield self.LAYOUTS[0], dict(zip(self.CHOSEN, types, strict=True)), self._source(capacity, types)

    def _source(self, capacity: int, types: tuple[ElementKind, ...]) -> KernelSource:
        source = self._sources.get((capacity, types))
        if source is None:
            source = self._sources[capacity, types] = kernel_source(
                self._row,
                {"ARRAYS": capacity},
                present={a.name: self.present(a.name) for a in self.ARGUMENTS.values() if a.optional},
                types=dict(zip(self.CHOSEN, types, strict=True)),
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

    def _watched(self, views: Views, scratch: TensorView | None) -> list[WatchedArray]:
        roles = {name: self.ARGUMENTS[name.partition("[")[0]].role for name in views}
        return [
            WatchedArray(name, roles[name], v.pointer, v.shape, v.strides, v.element.row.bytes)
            for name, v in views.items()
        ]

    def _launches(self, views: Views, workspace: int) -> list[Launch]:
        lists, schedule = columns(self.LISTS, views), self.sku.schedule
        assert isinstance(schedule, Schedule)
        firsts = {n: views[n] for n in views if n in self.ARGUMENTS} | {of: views[n[0]] for of, n in lists.items()}
        types = tuple([firsts[n].element if n in firsts else self.elements_of(n)[0] for n in self.CHOSEN])
        numbers = [firsts[n].pointer if n in firsts else 0 for n in self.ARGUMENTS if n not in self.LISTS]
        head = (*numbers, *self._words_of(self.SCALARS))
        chunk = schedule.threads * dict(schedule.numbers)["packs"] * (VECTOR_BYTES // self.element.row.bytes)
        sizes = [views[name].shape[0] for name in next(iter(lists.values()))]
        filled = [i for i, size in enumerate(sizes) if size]
        pointers = {of: [views[names[i]].pointer for i in filled] for of, names in lists.items()}
        few, most = self.capacities()
        launches = []
        for at in range(0, len(filled), most):
            some = [sizes[i] for i in filled[at : at + most]]
            capacity = few if len(some) <= few else most
            *first, blocks = accumulate([ceil_div(size, chunk) for size in some], initial=0)
            columns_of = (some, first, *(pointers.get(of, ())[at : at + most] for of in self.LISTS))
            words = array("q", (len(some), *head))
            for column in columns_of:
                words.extend((*column, *[0] * (capacity - len(column))))
            launches.append(Launch(self._source(capacity, types), (blocks, 1, 1), schedule.threads, words))
        return launches
