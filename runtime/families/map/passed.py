"""Plans of programs that take one walk over the data, or several, which leave arrays for each other."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Protocol, TypeVar

from ...arrays.arguments import Argument, Views
from ...arrays.axes import contiguous_strides
from ...arrays.element import ElementKind
from ...arrays.tensor import TensorView
from ...arrays.workspace import rounded
from ...device import KernelSource
from ...plans.plan import Launch, Plan
from ...plans.registry import Registered
from ...plans.sku import KernelSku
from .geometry import Group, MapDescriptor

M = TypeVar("M", bound=MapDescriptor)


class DeclaredPass(Protocol):
    """A dataclass of what a plan declares of a pass: its arrays, and constants of its class, without capitals."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def writes(self) -> tuple[str, ...]: ...


class PassedPlan(Plan[M]):
    """What plans with and without passes declare of sums, and how passes follow one another."""

    SUMMED: ClassVar[tuple[str, ...]] = ()  # dims that sums run over
    SUMS: ClassVar[tuple[str, ...]] = ()  # for each, the descriptor's flag that says it is wanted, or ""
    SUM_BYTES: ClassVar[tuple[int, ...]] = ()  # for each, bytes of a part in scratch; 0: the accumulator's; () for all
    INVARIANT: ClassVar[tuple[str, ...]] = ()  # dims of which sums along others have one order, however long they are
    AXES: ClassVar[dict[str, tuple[Group, ...]]] = {}  # argument -> the dims that its axes run along
    NUMBER: ClassVar[int] = 0  # of a pass: which it is, from 1
    LOOP: ClassVar[int] = 0  # of a pass: those of one number run for each chunk of a dim, one after the other
    KINDS: ClassVar[tuple[str, ...]] = ()  # of a pass: the kinds that take it, of an op that has some
    SHARED: ClassVar[bool] = False  # of a pass: whether its kernels are the same for these
    HELD: ClassVar[dict[str, str]] = {}  # arrays in the workspace that passes leave for later ones, and their types
    PASSES: ClassVar[tuple[DeclaredPass, ...]] = ()  # of a program that takes several walks
    DESCRIPTOR: ClassVar[type[MapDescriptor]]
    PASS_PLANS: ClassVar[tuple[type[PassedPlan[Any]], ...]] = ()  # follow from it

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if passes := vars(cls).get("PASSES"):
            cls.PASS_PLANS = tuple(_pass_plan(cls, declared, number) for number, declared in enumerate(passes, 1))

    def __init__(self, descriptor: M, row: Registered, layouts: frozenset[str]) -> None:
        super().__init__(descriptor, row, layouts)
        steps = dict.fromkeys(self._steps_of(descriptor))
        self._plans = {(of, problem): of(problem, *of.within(problem, row, layouts)) for of, problem in steps}
        self._passes = [*self._plans.values()]

    @classmethod
    def dims_text(cls) -> str:
        """The fields that dims come from, or which of their axes they are."""
        axes = {dim: "other axes" if of == "rest" else f"axes {of}" for dim, of in cls.DESCRIPTOR._axes.items()}
        of = [(dim, f"the {axes[dim]} of " if dim in axes else "", text) for dim, text in cls.DESCRIPTOR._dims.items()]
        return f"{', '.join([f'{dim} is {part}{text}' for dim, part, text in of])};\n"

    @classmethod
    def _pass_plans(cls, descriptor: M) -> Sequence[type[PassedPlan[Any]]]:
        """The passes of a problem, of whose kind they may be, that make something that is there."""
        kind = getattr(descriptor, "kind", "")
        return [of for of in cls.PASS_PLANS if (not of.KINDS or kind in of.KINDS) and of._is_wanted(descriptor)]

    @classmethod
    def _steps_of(cls, descriptor: M) -> Iterator[tuple[type[PassedPlan[Any]], M]]:
        """The passes, each with its problem: those of a loop with a whole chunk and, perhaps the same, the last one."""
        problems = [of for dim in descriptor._chunks for of in descriptor._in_chunks(dim)]
        for of in cls._pass_plans(descriptor):
            yield from ((of, problem) for problem in (problems if of.LOOP else (descriptor,)))

    def _sequence(self) -> Iterator[tuple[PassedPlan[M], int]]:
        """The passes in the order of their launches, those of a loop for each chunk, and where that begins."""
        for loop, run in groupby(self._pass_plans(self.descriptor), lambda of: of.LOOP):
            passes = [*run]
            if not loop:
                yield from ((self._plans[of, self.descriptor], 0) for of in passes)
                continue
            (dim,) = self.descriptor._chunks
            starts, (whole, last) = self.descriptor._chunk_starts(dim), self.descriptor._in_chunks(dim)
            for first in starts:
                yield from ((self._plans[of, last if first == starts[-1] else whole], first) for of in passes)

    @classmethod
    def _is_wanted(cls, descriptor: M) -> bool:
        """Whether any output is there."""
        flags = [argument.optional for argument in cls.ARGUMENTS.values() if argument.written]
        return any(not flag or getattr(descriptor, flag) for flag in flags)

    @classmethod
    def cannot_hold(cls, descriptor: M, sku: KernelSku) -> str | None:
        """None: every schedule serves every problem."""
        return None

    @classmethod
    def workspace_of(cls, descriptor: M, sku: KernelSku) -> int:
        """Bytes of the partial sums that blocks share, and of what passes hand over."""
        if cls.PASS_PLANS:
            parts = max([sum(of._parts_bytes(problem, sku)) for of, problem in cls._steps_of(descriptor)], default=0)
            return parts + sum(rounded(size) for size, *_ in cls._handed_over(descriptor).values())
        return sum(cls._parts_bytes(descriptor, sku))

    @classmethod
    def _parts_bytes(cls, descriptor: M, sku: KernelSku) -> list[int]:
        """Bytes of the partial sums of each reduction."""
        raise AssertionError("families define this")

    def depth_of(self, dims: Collection[str], count: int) -> float:
        """The maximum number of roundings of one of the `count` terms of a sum over `dims`."""
        raise AssertionError("families define this")

    def variants(self) -> Iterator[tuple[str, dict[str, ElementKind], KernelSource]]:
        """Everything that any arrays may need: layout, element types and source."""
        raise AssertionError("families define this")

    @classmethod
    def of_pass(cls, plan: type[PassedPlan[Any]], declared: Any) -> dict[str, Any]:
        """What else the plan of a pass of `plan` declares."""
        raise AssertionError("families define this")

    @classmethod
    def base_of(cls, declared: DeclaredPass) -> type[PassedPlan[Any]]:
        """What the plan of a pass derives from: what the plan itself does."""
        base: type[PassedPlan[Any]]
        (base,) = cls.__bases__
        return base

    @classmethod
    def within(cls, descriptor: M, row: Registered, layouts: frozenset[str]) -> tuple[Registered, frozenset[str]]:
        """The row of a pass in the plan of that `row`, and the pass's layouts among that plan's, or all if none is."""
        return row, layouts & {*cls.LAYOUTS} or frozenset(cls.LAYOUTS)

    @cached_property
    def _kind(self) -> dict[str, str]:
        """The constant of what is computed, where kinds differ in it."""
        offered: tuple[str, ...] = self.descriptor._kinds
        return {"KIND": getattr(self.descriptor, "kind", "")} if offered and not self.SHARED else {}

    def _depth_in_passes(self, dims: Collection[str], count: int) -> float:
        """The most roundings of a term in any pass that sums over `dims`; 0 if none does."""
        depths = [of.depth_of(dims, count) for of in self._passes if {*of.SUMMED} == {*dims}]
        added = sum(len(self.descriptor._chunk_starts(dim)) for dim in self.descriptor._chunks if dim in dims)
        return max(depths, default=-added) + added

    @classmethod
    def _handed_over(cls, descriptor: M) -> dict[str, tuple[int, tuple[int, ...], ElementKind]]:
        """What passes leave for later ones: bytes, shape and type of each array."""
        found = {}
        for of, problem in cls._steps_of(descriptor):
            shapes = of.shapes_of(problem)
            for name, argument in of.ARGUMENTS.items():
                if argument.written and name not in cls.ARGUMENTS and name not in found:
                    (element,) = argument.elements(ElementKind(descriptor.element))
                    (shape,) = shapes[name]
                    found[name] = math.prod(shape) * element.row.bytes, shape, element
        return found

    def _types_of(self, types: Mapping[str, ElementKind | str]) -> Iterator[tuple[PassedPlan[M], dict[str, Any]]]:
        """The passes, and the element types of their arguments among `types`."""
        for part in self._passes:
            yield part, {name: kind for name, kind in types.items() if name in part.CHOSEN}

    @property
    def _number(self) -> dict[str, int]:
        """The constant that says which pass it is, where there are several."""
        return {"PASS": self.NUMBER} if self.NUMBER else {}

    @property
    def _name(self) -> str:
        """What the entry point of a pass is called after, where there are several."""
        return f"pass{self.NUMBER}" if self.NUMBER else ""

    def _in_passes(self, views: Views, workspace: int) -> list[Launch]:
        """The launches of all passes: the workspace begins with what they hand over, then each has its own sums.

        What passes of a loop hand over is of one chunk, and the same memory for the next.
        """
        device, known = next(iter(views.values())).device, dict(views)
        for name, (size, shape, element) in self._handed_over(self.descriptor).items():
            known[name] = TensorView(workspace, shape, contiguous_strides(shape), element, device, False, None, None)
            workspace += rounded(size)
        loops = [of.ARGUMENTS.items() for of in self._passes if of.LOOP]
        local = {name for items in loops for name, argument in items if argument.written} - self.ARGUMENTS.keys()
        parts = ((of, of._in_chunk(of._views_of(known), first, local)) for of, first in self._sequence())
        return [x for of, views in parts for x in of._launches(views, workspace)]

    def _views_of(self, views: Views) -> Views:
        """The arguments of a pass among those of all."""
        return {name: views[name] for name in self.ARGUMENTS if name in views}

    def _in_chunk(self, views: Views, first: int, local: Collection[str]) -> Views:
        """What a pass of a loop has of its arguments: a chunk, which begins at `first`; `local` arrays are of one."""
        groups = [(dim,) for dim in self.descriptor._chunks if self.LOOP]
        found = dict(views)
        for group in groups:
            for name in (name for name in views if group in self.AXES[name]):
                shape, axis = self._shapes[name][0], self.AXES[name].index(group)
                found[name] = _part(views[name], axis, shape, first, name in local)
        return found


def _pass_plan(plan: type[PassedPlan[Any]], declared: DeclaredPass, number: int) -> type[PassedPlan[Any]]:
    """The plan of one pass, which only the plan of the whole starts."""
    base = plan.base_of(declared)
    given = {field.name.upper(): getattr(declared, field.name) for field in fields(declared)}
    reads, writes = given.pop("READS"), given.pop("WRITES")
    arguments = {argument.name: argument for argument in plan.TENSORS}
    tensors = [_as_read(arguments.get(n), n, plan.HELD, "inout" if n in writes else "in") for n in reads]
    later = [name for name in writes if name not in reads]
    tensors += [arguments.get(name) or Argument(name, "out", "array", (plan.HELD[name],)) for name in later]
    constants = {name: value for name, value in given.items() if value is not None and hasattr(base, name)}
    constants |= {"TENSORS": tuple(tensors), **base.of_pass(plan, declared)}
    constants |= {"DESCRIPTOR": plan.DESCRIPTOR, "NUMBER": number}
    return type(f"{plan.__name__}Pass{number}", (base,), constants)


def _as_read(argument: Argument | None, name: str, held: Mapping[str, str], role: str) -> Argument:
    """An argument as a pass reads it, which an earlier pass may have written, or an array that one left."""
    if argument is not None and argument.role == role:
        return argument
    over, dtypes = ("array", (held[name],)) if argument is None else (argument.over, argument.dtypes)
    return Argument(name, role, over, dtypes)


def _part(view: TensorView, axis: int, shape: tuple[int, ...], first: int, is_local: bool) -> TensorView:
    """A chunk of an array, of this `shape`; a local one is the memory of every chunk."""
    if is_local:
        return view._replace(shape=shape, strides=contiguous_strides(shape))
    pointer = view.pointer + first * view.strides[axis] * view.element.row.bytes
    return view._replace(pointer=pointer, shape=shape)
