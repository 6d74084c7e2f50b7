"""A test problem: a descriptor's values, arrays in the shapes a caller has them in, and the same as rows x columns."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, RowDescriptor

from ..load import Loaded
from ..program.evaluate import Space
from ..spec import OpSpec, TensorSpec

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Subject:
    """An op with what its tests need: the spec, the specs around it and its generated plan."""

    loaded: Loaded
    others: Mapping[str, Loaded]
    package: str

    @property
    def spec(self) -> OpSpec:
        return self.loaded.spec

    @cached_property
    def _module(self) -> Any:
        return import_module(f"{self.package}.{self.spec.category}.{self.spec.op}")

    @property
    def plan(self) -> Any:
        return getattr(self._module, self.spec.plan)

    def descriptor(self, values: Mapping[str, Any], element: ElementKind | str) -> RowDescriptor:
        """The descriptor of a test case, with the spec's defaults for what the case does not say."""
        kind = getattr(self._module, self.spec.plan.removesuffix("Plan") + "Descriptor")
        return kind(**self.values(values), element=element)  # type: ignore[no-any-return]

    def values(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Every field of the descriptor but `element`."""
        merged = {**self.spec.tests.defaults, **case}
        return {name: merged.get(name, field.default) for name, field in self.spec.descriptor.items()}


class Problem:
    """One descriptor, with the correspondence between the caller's shapes and [rows, cols]."""

    def __init__(self, subject: Subject, case: Mapping[str, Any], element: ElementKind | str) -> None:
        self.subject, self.spec, self.element = subject, subject.spec, ElementKind(element)
        self.values = subject.values(case)
        self.descriptor: Any = subject.descriptor(case, element)
        self.descriptor.check()
        self.plan: Any = subject.plan.select(self.descriptor)
        self.shape = tuple(getattr(self.descriptor, self.descriptor._shape))
        self.col_axes = tuple(sorted(self.descriptor.col_axes))
        self.row_axes = tuple(a for a in range(len(self.shape)) if a not in self.col_axes)
        self.rows = math.prod(self.shape[a] for a in self.row_axes)
        self.cols = math.prod(self.shape[a] for a in self.col_axes)
        self.row_dim = next(n for n, d in self.spec.dims.items() if d.axes == "rest")
        self.col_dim = next(n for n in self.spec.dims if n != self.row_dim)

    @property
    def arguments(self) -> dict[str, TensorSpec]:
        """The tensors that take part."""
        return {n: t for n, t in self.spec.arguments.items() if self.plan.present(n)}

    @property
    def written(self) -> list[str]:
        return [n for n in self.arguments if self.plan.ARGUMENTS[n].written]

    @property
    def results(self) -> dict[str, str]:
        """Each written argument with the name its program gives the value."""
        names = {t.updates or n: n for n, t in self.spec.outputs.items()}
        return {argument: name for argument, name in names.items() if argument in self.arguments}

    def held(self, choice: Mapping[str, ElementKind] | None = None) -> dict[str, ElementKind]:
        """The element type of each argument: the usual one unless `choice` says otherwise."""
        return {n: (choice or {}).get(n, self.plan.elements_of(n)[0]) for n in self.arguments}

    @property
    def space(self) -> Space:
        extents = {d: self.rows if d == self.row_dim else self.cols for d in self.spec.dims}
        optional = frozenset(n for n, t in self.spec.tensors.items() if t.optional and n in self.arguments)
        return Space(extents, optional)

    def shape_of(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.plan.shapes()[name][0]
        return shape

    def flat(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`array` with one axis per dim of the spec, extent 1 where the tensor does not vary."""
        dims = self.spec.tensors[name].dims
        extents = self.space.shape(dims)
        if set(dims) == set(self.spec.dims):
            array = array.transpose([*self.row_axes, *self.col_axes])
            if next(iter(self.spec.dims)) == self.col_dim:
                return array.reshape(self.rows, self.cols).T
        return array.reshape(extents)

    def caller(self, name: str, array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The reverse of `flat`."""
        dims = self.spec.tensors[name].dims
        array = np.broadcast_to(array, self.space.shape(dims))
        if set(dims) != set(self.spec.dims):
            return array.reshape(shape)
        if next(iter(self.spec.dims)) == self.col_dim:
            array = array.T
        order = [*self.row_axes, *self.col_axes]
        unflat = array.reshape([self.shape[a] for a in order])
        return unflat.transpose(np.argsort(order))

    def draw(self, style: str = "normal", seed: int = 0) -> Arrays:
        """Random inputs in the caller's shapes, exactly representable; what the forward saves is not among them."""
        rng = self._rng(seed)
        saved = set(self.spec.gradient.saved) if self.spec.gradient else set()
        return {
            name: self._values(rng, style, self.shape_of(name), self.plan.elements_of(name)[0], self._range(name))
            for name in self.arguments
            if name in self.spec.inputs and name not in saved
        }

    def draw_hidden(self, style: str = "normal", seed: int = 0) -> Arrays:
        """Inputs of the forward that its gradient does not take, as rows x columns: the oracle needs them."""
        forward = self.forward
        if forward is None:
            return {}
        rng, hidden = self._rng(seed + 1), {}
        for name, tensor in forward.inputs.items():
            there = not tensor.optional or self.values.get(tensor.optional, True)
            if name not in self.spec.inputs and there:
                same = dict(zip(forward.dims, self.spec.dims, strict=True))
                shape = self.space.shape([same[d] for d in tensor.dims])
                hidden[name] = self._values(rng, style, shape, self.element, forward.tests.ranges.get(name))
        return hidden

    @cached_property
    def forward(self) -> OpSpec | None:
        """The spec whose reference this op differentiates."""
        gradient = self.spec.gradient
        return self.subject.others[gradient.of].spec if gradient else None

    def _rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng([seed, zlib.crc32(str(self.descriptor).encode())])

    def _range(self, name: str) -> tuple[float, float] | None:
        own = self.spec.tests.ranges.get(name)
        return own or (self.forward.tests.ranges.get(name) if self.forward else None)

    def _values(
        self,
        rng: np.random.Generator,
        style: str,
        shape: tuple[int, ...],
        kind: ElementKind,
        given: tuple[float, float] | None,
    ) -> np.ndarray[Any, Any]:
        if kind.value[0] in "iu":
            low, high = given or (-100, 100)
            return rng.integers(int(low), int(high) + 1, shape).astype(kind.row.numpy)
        if given is not None:
            return rng.uniform(*given, shape).astype(kind.row.numpy)
        return np.asarray(STYLES[style](self, rng, shape)).astype(kind.row.numpy)


def _normal(problem: Problem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Of both signs, a few columns far larger than the rest."""
    outliers = np.where(rng.random(shape[-1:]) < 0.01, 30.0, 1.0)
    return rng.standard_normal(shape) * (outliers if len(shape) > 1 else 1.0)


def _spread(problem: Problem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Positive and of very different size, so that sums grow and every addition rounds."""
    return 2.0 ** rng.uniform(-6, 6, shape)


def _constant(problem: Problem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """One number everywhere, so that every addition of a sum rounds alike."""
    return np.full(shape, rng.uniform(1.0, 2.0))


def _swamped(problem: Problem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Ones followed by numbers (or, in odd rows, squares) that each addition just loses: the worst a sum can do."""
    if shape != problem.shape:
        return rng.uniform(1.0, 2.0, shape)
    tile, vec = problem.plan.sku.schedule, 16 // problem.element.row.bytes
    col, row = np.arange(problem.cols), np.arange(problem.rows)[:, None]
    lost = problem.element.row.acc.row.unit_roundoff
    values = np.where((col < tile.lanes * vec) & (col % vec == 0), 1.0, np.where(row % 2, lost**0.5, lost))
    unflat = values.reshape([problem.shape[a] for a in (*problem.row_axes, *problem.col_axes)])
    return unflat.transpose(np.argsort([*problem.row_axes, *problem.col_axes]))


def _below(problem: Problem, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Far below zero, where the start of a maximum and what overflows without one show."""
    return rng.standard_normal(shape) - 1000.0


STYLES: dict[str, Callable[..., Any]] = {
    "normal": _normal,
    "below": _below,
    "spread": _spread,
    "constant": _constant,
    "swamped": _swamped,
}
