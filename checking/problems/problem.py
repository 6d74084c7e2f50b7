"""A test problem: a descriptor's values, the arrays that are present, and random data for them.

Each family defines a problem's size and how the caller's arrays look to the oracle.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any, ClassVar

import numpy as np

from baracuda.codegen.program.space import Space
from baracuda.codegen.spec.parts import TensorSpec
from baracuda.codegen.spec.spec import OpSpec, ProgramSpec
from baracuda.runtime import BaracudaError, ElementKind, KernelSku, PlanPreference, TensorView

from .numbers import STYLES, extremes, far, normal
from .of_kernels import OfKernels
from .subject import Subject

Arrays = dict[str, np.ndarray[Any, Any]]
Arguments = dict[str, Any]  # of `run`
WrongCall = tuple[str, type[BaracudaError], Arguments, tuple[str, ...]]  # a label, the error, and words that it has
Range = tuple[float, float]


class Problem(OfKernels):
    """One descriptor and the plan that serves it."""

    FAMILIES: ClassVar[dict[str, type[Problem]]] = {}
    STYLES: ClassVar[tuple[str, ...]]  # how inputs are drawn

    def __init_subclass__(cls, family: str = "") -> None:
        if family:
            Problem.FAMILIES[family] = cls

    def __init__(
        self,
        subject: Subject,
        case: Mapping[str, Any],
        element: ElementKind | str,
        arch: str | None = None,
        layout: str | None = None,
        schedule: str | None = None,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        self.subject, self.spec, self.element = subject, subject.spec, ElementKind(element)
        self.case, self.arch, self.layout, self.schedule = dict(case), arch, layout, schedule
        self.asked = asked or {}
        self.values = subject.values(case)
        self.spec = self.spec.of_kind(self.values.get("kind"))
        self.descriptor: Any = subject.descriptor(case, element)
        self.descriptor.check()
        # By the rule, so that what is tested does not depend on what was measured somewhere.
        archs, schedules = (frozenset({wish}) if wish else None for wish in (arch, schedule))
        preference = PlanPreference(archs=archs, schedules=schedules, tuned=False, **self.asked)
        self.plan: Any = subject.plan.select(self.descriptor, preference, layouts=[layout] if layout else None)
        self._set_axes()

    def _set_axes(self) -> None:
        """Set what a family keeps of the extents."""

    @staticmethod
    def of(
        subject: Subject,
        case: Mapping[str, Any],
        element: ElementKind | str,
        arch: str | None = None,
        layout: str | None = None,
        schedule: str | None = None,
        asked: Mapping[str, Any] | None = None,
    ) -> Problem:
        """The problem of an op's family; only of kernels of `arch` and `schedule` and arrays of `layout`, if given.

        `asked` is what else its preference asks for.
        """
        return Problem.kind_of(subject)(subject, case, element, arch, layout, schedule, asked)

    @staticmethod
    def kind_of(subject: Subject) -> type[Problem]:
        """The problems of an op's family, which are in the module beside this one that has the family's name."""
        family = subject.spec.family
        if family not in Problem.FAMILIES:
            import_module(f".{family}", __package__)
        return Problem.FAMILIES[family]

    @property
    def turns_once(self) -> bool:
        """Whether no block takes more elements after its first."""
        return True

    def planned_anew(self) -> Any:
        """A plan that has not run yet: plans remember the number of multiprocessors."""
        plan = self.plan
        return plan.select(plan.descriptor, plan._preference, layouts=plan.layouts)

    def far_alone(self, name: str, axes: list[int]) -> list[int]:
        """Those of a tensor's `axes` along which, one at a time, parts are put far apart."""
        return axes[:1]

    def of_case(self, case: Mapping[str, Any]) -> Problem:
        """The problem of another case, for the same kernels."""
        return Problem.of(self.subject, case, self.element, self.arch, self.layout, self.schedule, self.asked)

    def packed_axis(self, name: str) -> int | None:
        """The axis along which `layout` needs a tensor's elements contiguous."""
        axis = self.plan.LAYOUT_AXES[self.layout].get(name) if self.layout else None
        return None if axis is None else int(axis) % len(self.shape_of(name))

    @property
    def size(self) -> int:
        """Roughly how many numbers are computed."""
        raise AssertionError("families define this")

    @property
    def several(self) -> bool:
        """Whether every loop of a kernel has more than one iteration."""
        raise AssertionError("families define this")

    @classmethod
    def limits(cls, subject: Subject) -> tuple[str, ...]:
        """Expressions over `numbers` that decide what a kernel does, in which `edges` looks for comparisons."""
        return tuple(requirement.that for requirement in subject.spec.require)

    def numbers(self, descriptor: Any, sku: KernelSku) -> Mapping[str, Any]:
        """What `limits` are over, for any descriptor of the op: its fields at least."""
        return dict(vars(descriptor))

    def fields_behind(self, names: Collection[str]) -> set[str]:
        """The fields that these `numbers` are made of: every one, unless a family knows better."""
        fields = set(self.spec.descriptor)
        return set(names) if fields.issuperset(names) else fields

    @property
    def arguments(self) -> dict[str, TensorSpec]:
        """The tensors that are present."""
        return {n: t for n, t in self.spec.arguments.items() if self.plan.present(n)}

    @property
    def written(self) -> list[str]:
        return [n for n in self.arguments if self.plan.ARGUMENTS[n].written]

    @property
    def results(self) -> dict[str, str]:
        """Each written argument with the name that its program or definition uses."""
        names = {t.updates or n: n for n, t in self.spec.outputs.items()}
        return {argument: name for argument, name in names.items() if argument in self.arguments}

    def stored_types(self, choice: Mapping[str, ElementKind] | None = None) -> dict[str, ElementKind]:
        """The element type of each argument: the default unless `choice` says otherwise."""
        return {n: (choice or {}).get(n, self.plan.elements_of(n)[0]) for n in self.arguments}

    def shape_of(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.plan.shapes()[name][0]
        return shape

    def flat(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`array` as the oracle sees it."""
        return array

    def caller(self, name: str, array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The reverse of `flat`."""
        return np.asarray(array).reshape(shape)

    def passed(self, name: str, view: TensorView) -> Any:
        """What `run` is given for a tensor that lies at `view`."""
        return view

    def wrong_calls(self, arguments: Arguments) -> Iterator[WrongCall]:
        """Calls that a family refuses beside those with one wrong array."""
        yield from ()

    def index_of(self, name: str, index: tuple[int, ...]) -> tuple[int, ...]:
        """The index in the caller's array of the element at `index` of `flat`."""
        shape = self.shape_of(name)
        numbers = self.flat(name, np.arange(prod(shape)).reshape(shape))
        return tuple(int(i) for i in np.unravel_index(numbers[index[: numbers.ndim]], shape))

    @cached_property
    def saved(self) -> frozenset[str]:
        """Inputs that the forward computes and saves; those that it only reads are drawn."""
        gradient, forward = self.spec.gradient, self.forward
        return frozenset(gradient.saved).intersection(forward.outputs) if gradient and forward else frozenset()

    def draw(
        self,
        style: str = "normal",
        seed: int = 0,
        choice: Mapping[str, ElementKind] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Arrays:
        """Random inputs in the caller's shapes and stored types, without those saved by the forward.

        They are of `rng`, or else of `seed`. Of a tensor in f32 beside halves, values have more bits than halves do.
        """
        rng, types = rng or self._rng(seed), self.stored_types(choice)
        return {
            name: self._values(rng, style, self.shape_of(name), types[name], name)
            for name in self.arguments
            if name in self.spec.inputs and name not in self.saved
        }

    def draw_hidden(self, style: str = "normal", seed: int = 0) -> Arrays:
        """Inputs of the forward that its gradient does not take, as the oracle sees them."""
        forward = self.forward
        if forward is None:
            return {}
        rng, hidden = self._rng(seed + 1), {}
        for name, tensor in forward.inputs.items():
            is_present = not tensor.optional or self.values.get(tensor.optional, True)
            if name not in self.spec.inputs and is_present:
                hidden[name] = self._values(rng, style, self._hidden_shape(name), self.element, name)
        return hidden

    def _hidden_shape(self, name: str) -> tuple[int, ...]:
        raise AssertionError(f"{self.spec.op} has no input {name!r}, which its forward takes")

    @cached_property
    def forward(self) -> OpSpec | None:
        """The spec whose reference this op differentiates."""
        gradient = self.spec.gradient
        return self.subject.others[gradient.of].spec.of_kind(self.values.get("kind")) if gradient else None

    @property
    def batch(self) -> int | None:
        """How many rows or samples the batch has, along its first axis; None without a batch."""
        raise AssertionError("families define this")

    def with_batch(self, count: int) -> Problem:
        """The same problem with another number of rows or samples, where it has a batch."""
        raise AssertionError("families define this")

    def _rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng([seed, zlib.crc32(str(self.descriptor).encode())])

    def _range(self, name: str) -> Range | None:
        own = self.spec.tests.ranges.get(name)
        return own or (self.forward.tests.ranges.get(name) if self.forward else None)

    def may_be_far(self, name: str, kind: ElementKind) -> bool:
        """Whether an array has places that there are and any others, beyond 32 bits: its range has some below 0."""
        low = (self._range(name) or (0, 0))[0]
        return kind == ElementKind.I64 and -(2**31) < low < 0

    def _values(
        self, rng: np.random.Generator, style: str, shape: tuple[int, ...], kind: ElementKind, name: str
    ) -> np.ndarray[Any, Any]:
        value_range, numpy = self._range(name), kind.row.numpy
        if kind == ElementKind.BOOL:
            return rng.random(shape) < 0.5
        if kind.value[0] in "iu":
            if style == "extremes" and value_range is None:
                return extremes(rng, shape, np.iinfo(numpy))
            low, high = value_range or ((0, 100) if kind.value[0] == "u" else (-100, 100))
            drawn = rng.integers(int(low), int(high) + 1, shape).astype(numpy)
            return far(rng, drawn) if style == "far" and self.may_be_far(name, kind) else drawn
        style = "normal" if style in ("extremes", "far") else style
        if value_range is not None:
            return rng.uniform(*value_range, shape).astype(numpy)
        if kind.value[0] == "c":
            return (self._drawn(rng, style, shape) + 1j * self._drawn(rng, style, shape)).astype(numpy)
        return self._drawn(rng, style, shape).astype(numpy)

    def _drawn(self, rng: np.random.Generator, style: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if style == "enormous":
            return np.asarray(normal(rng, shape) * self._enormous)
        return np.asarray(STYLES[style](rng, shape))

    @cached_property
    def _enormous(self) -> float:
        """Of products of three numbers of this size long sums are finite."""
        row = self.element.row
        return float(min(row.largest / 256, row.acc.row.largest**0.25)) or 1.0


class ProgramProblem(Problem):
    """A problem of an op with a program."""

    spec: ProgramSpec

    @property
    def space(self) -> Space:
        """What the op's program is evaluated over."""
        raise AssertionError("families define this")

    @property
    def _optional(self) -> frozenset[str]:
        """The optional tensors that are present."""
        return frozenset(n for n, t in self.spec.tensors.items() if t.optional and n in self.arguments)

    @property
    def of_elements(self) -> Collection[str]:
        """The outputs that are made of elements of inputs, not of reductions alone."""
        return self.spec.outputs

    @property
    def split(self) -> float:
        """What a factor of a sum of products may lose beside a roundoff."""
        return 0.0

    @property
    def least(self) -> float:
        """What smaller factors count as, where the terms of a sum are cut off below the largest."""
        return 0.0

    @property
    def rounded(self) -> float:
        """The unit roundoff of what factors of a sum of products are rounded to."""
        return 0.0

    def depth(self, dims: tuple[str, ...], count: int) -> float:
        """The longest chain of additions that a kernel makes of a sum of `count` terms along `dims`."""
        raise AssertionError("families define this")
