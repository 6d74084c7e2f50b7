"""A problem of the body family: the oracle sees the caller's arrays as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from baracuda.codegen.conditions.parse import evaluate_condition, fields_of
from baracuda.codegen.families.body.spec import BodySpec
from baracuda.codegen.spec.parts import RangeSpec
from baracuda.runtime import ElementKind, KernelSku, Schedule

from .cases import canonical, could_serve
from .of_kernels import number_names
from .problem import Problem
from .subject import Subject


class BodyProblem(Problem, family="body"):
    """Fields of a descriptor, and arrays of the shapes that follow from them."""

    STYLES = ("normal", "spread", "constant")
    spec: BodySpec

    @property
    def size(self) -> int:
        """All elements of all arrays."""
        return sum(math.prod(self.shape_of(name)) for name in self.arguments)

    @property
    def several(self) -> bool:
        """Whether no array is empty and none of an output's axes is trivial."""
        return all(min(self.shape_of(name), default=1) > 1 for name in self.written)

    @classmethod
    def limits(cls, subject: Subject) -> tuple[str, ...]:
        spec: Any = subject.spec
        parts = [*spec.settings.values(), *spec.terms.values(), *(scratch.size for scratch in spec.workspace.values())]
        for kernel in spec.kernels:
            parts += [*map(str, kernel.grid), str(kernel.shared), kernel.when or ""]
        parts += [schedule.fits or "" for schedule in spec.schedules]
        return (*super().limits(subject), *filter(None, parts))

    @staticmethod
    def long_cases(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[Mapping[str, Any]]:
        """With tails below and above half a tile, in order of `_preference`."""
        spec = subject.spec
        numbers = dict(sku.schedule.numbers) if isinstance(sku.schedule, Schedule) else {}
        tile = max((int(number) for number in numbers.values()), default=1)
        ranges = {name: rule for name, rule in spec.tests.draw.items() if isinstance(rule, RangeSpec) and not rule.rank}
        long = [name for name, rule in ranges.items() if rule.high > 2 * tile]
        tails = product((2 * tile + tile // 10 + 1, 3 * tile - tile // 10 - 1), repeat=len(long))
        stretches = [dict(zip(long, values, strict=True)) for values in tails]
        others = ({name: value for name, value in case.items() if name != "dtype"} for case in spec.tests.cases)
        cases = [{**case, **stretch} for case in (*(base.case for base in bases), *others) for stretch in stretches]
        for case in sorted(cases, key=lambda case: _preference(subject, case)):
            if could_serve(subject, sku, case):
                yield case

    @staticmethod
    def only_layout(subject: Subject, sku: KernelSku) -> str | None:
        layouts = subject.plan._works_on(sku)
        return layouts[0] if len(layouts) == 1 and len(subject.plan.LAYOUTS) > 1 else None

    @staticmethod
    def path_of(subject: Subject, sku: KernelSku) -> Hashable:
        """The architecture if the op has a header of its own for it, and what the schedule and its layout are."""
        spec: Any = subject.spec
        return sku.arch if sku.arch in spec.body else "", sku.layout, number_names(sku)

    @staticmethod
    def facts(spec: BodySpec) -> dict[str, Any]:
        """What factors are rounded to, and along which axes layouts are contiguous."""
        math: dict[str, list[str]] = {}
        for dtype, rounded in ((dtype, schedule.math) for schedule in spec.schedules for dtype in schedule.dtypes):
            math.setdefault(f"{dtype} factors", []).append(rounded)
        layouts = ((f"{n} along", " ".join(f"{t}[{axis}]" for t, axis in of.items())) for n, of in spec.layouts.items())
        return {**{name: " ".join(kinds) for name, kinds in math.items()}, **dict(layouts)}

    @staticmethod
    def launch_terms(spec: BodySpec) -> list[str] | None:
        return [*spec.settings.values(), *spec.terms.values(), *(s.fits for s in spec.schedules if s.fits)]

    def numbers(self, descriptor: Any, sku: KernelSku) -> Mapping[str, Any]:
        """Settings, terms and numbers of the schedule, too."""
        numbers: Mapping[str, Any] = self.subject.plan._numbers(descriptor, sku)
        return numbers

    def fields_behind(self, names: Collection[str]) -> set[str]:
        parts = {**self.spec.settings, **self.spec.terms}
        behind, left = set(), list(names)
        while left:
            name = left.pop()
            if name not in behind:
                behind.add(name)
                left += fields_of(parts.get(name, "0"))
        return behind.intersection(self.spec.descriptor)

    @property
    def batch(self) -> int | None:
        """The field that the spec calls the batch."""
        return None if self.spec.tests.batch is None else int(self.values[self.spec.tests.batch])

    def with_batch(self, count: int) -> Problem:
        """The same problem with another batch."""
        batch = str(self.spec.tests.batch)
        rest = {n: v for n, v in self.case.items() if self.spec.descriptor[n].same_as != batch}
        return self.of_case({**rest, batch: count})

    @property
    def forward_values(self) -> dict[str, Any]:
        """The fields of the forward's descriptor, with its usual values for those that this op has not."""
        assert isinstance(self.forward, BodySpec)
        fields = self.forward.descriptor.items()
        return {**{n: self.forward.tests.defaults.get(n, f.default) for n, f in fields}, **self.values}

    def _hidden_shape(self, name: str) -> tuple[int, ...]:
        assert isinstance(self.forward, BodySpec)
        return tuple(evaluate_condition(self.forward.inputs[name].shape, self.forward_values))

    def _values(
        self, rng: np.random.Generator, style: str, shape: tuple[int, ...], kind: ElementKind, name: str
    ) -> np.ndarray[Any, Any]:
        spec = self.spec if name in self.spec.inputs else self.forward
        assert isinstance(spec, BodySpec)
        rule = spec.inputs[name].test
        drawn = DRAWN[rule](self, rng, shape) if rule else super()._values(rng, style, shape, kind, name)
        return np.asarray(drawn).astype(kind.row.numpy)


def _offsets(problem: BodyProblem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Where sequences begin that share the axis `seq_len`: some are empty."""
    inner = np.sort(rng.integers(0, problem.values["seq_len"] + 1, max(shape[0] - 2, 0)))
    ends = [0, *inner.tolist(), problem.values["seq_len"]]
    return np.asarray(ends[: shape[0]])


def _mask(problem: BodyProblem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Added to scores: a fifth of them excludes its key."""
    return np.where(rng.random(shape) < 0.2, -np.inf, rng.standard_normal(shape))


def _slopes(problem: BodyProblem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Powers of two below one."""
    return 2.0 ** -rng.uniform(1, 8, shape)


DRAWN: dict[str, Callable[..., Any]] = {"offsets": _offsets, "mask": _mask, "slopes": _slopes}


def _preference(subject: Subject, case: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Several heads or samples, whichever an output's first axes count, before one; more flags before fewer, then less
    work, as the spec's benchmark counts it.
    """
    spec: Any = subject.spec
    values = canonical(subject.values(case))
    shapes = [tuple(evaluate_condition(tensor.shape, values)) for tensor in spec.outputs.values()]
    work = evaluate_condition(spec.bench.flops, values) if spec.bench.flops else sum(map(math.prod, shapes))
    alone = max(sum(extent > 1 for extent in shape) for shape in shapes) <= 2
    return alone, -sum(value is True for value in values.values()), int(work)
