"""A problem of the map family, with the correspondence between the caller's axes and the dims of the program."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from baracuda.codegen.conditions.parse import evaluate_condition
from baracuda.codegen.families.map.program import Parts, split
from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.program.space import Space
from baracuda.runtime import KernelSku, Schedule
from baracuda.runtime.families.map.geometry import IndexSpace

from .cases import canonical
from .problem import Problem, ProgramProblem
from .subject import Subject


class MapProblem(ProgramProblem, family="map"):
    """Dims of one or several axes each."""

    STYLES = ("normal", "spread", "constant")
    walks_space = True
    spec: MapSpec

    def _set_axes(self) -> None:
        values = canonical(self.values)
        extents = {dim: evaluate_condition(spec.of, values) for dim, spec in self.spec.dims.items()}
        self.axes = {dim: (v,) if isinstance(v, int) else tuple(v) for dim, v in extents.items()}
        texts = {name: dim.axes for name, dim in self.spec.dims.items() if dim.axes is not None}
        given = {name: evaluate_condition(axes, values) for name, axes in texts.items() if axes != "rest"}
        self.shares = {n: sorted(axes) for n, axes in given.items()}
        for name in texts.keys() - given.keys():
            taken = {axis for axes in given.values() for axis in axes}
            self.shares[name] = [axis for axis in range(len(self.axes[name])) if axis not in taken]
        self.axes |= {n: tuple(self.axes[n][axis] for axis in axes) for n, axes in self.shares.items()}

    @property
    def size(self) -> int:
        """Cells of the index space."""
        return self.space.count(self._parts.cells)

    @cached_property
    def _parts(self) -> Parts:
        """Of the program. Dims that are not of its cells give extents of what is read at computed places."""
        return split(self.spec)

    @property
    def of_elements(self) -> Collection[str]:
        return {n for n in self.spec.outputs if self._parts.needed([n], self._parts.sums) & self.spec.inputs.keys()}

    @property
    def several(self) -> bool:
        """Whether there are several cells along every dim, and several places of what is read at any."""
        return min(self.space.extents.values()) > 1

    @property
    def space(self) -> Space:
        return Space({dim: math.prod(extents) for dim, extents in self.axes.items()}, self._optional)

    def _split(self, name: str) -> list[tuple[str, int]]:
        """The caller's axes cut where dims meet in one: which dim and which of its axes each part is."""
        tensor = self.spec.tensors[name]
        parts: list[tuple[str, int]] = []
        for shared, groups in groupby(tensor.groups, lambda dims: dims[0] in self.shares):
            along = [[(dim, axis) for dim in dims] for dims in groups for axis in range(len(self.axes[dims[0]]))]
            if shared:  # in the order of the shape that they share
                along.sort(key=lambda axes: self.shares[axes[0][0]][axes[0][1]])
            parts += [axis for axes in along for axis in axes]
        return parts

    def flat(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`array` with one axis per dim of the spec, extent 1 where the tensor does not vary."""
        parts = self._split(name)
        order = list(self.spec.dims)
        present = [dim for dim in order if dim in {d for d, _ in parts}]
        cut = array.reshape([self.axes[dim][axis] for dim, axis in parts])
        turned = cut.transpose(sorted(range(len(parts)), key=lambda i: (order.index(parts[i][0]), parts[i][1])))
        extents = self.space.extents
        return turned.reshape([extents[dim] if dim in present else 1 for dim in order])

    def caller(self, name: str, array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The reverse of `flat`."""
        parts, order = self._split(name), list(self.spec.dims)
        present = {dim for dim, _ in parts}
        full = np.broadcast_to(array, [self.space.extents[d] if d in present else 1 for d in order])
        turned = sorted(range(len(parts)), key=lambda i: (order.index(parts[i][0]), parts[i][1]))
        unflat = full.reshape([self.axes[parts[i][0]][parts[i][1]] for i in turned])
        return unflat.transpose(np.argsort(turned)).reshape(shape)

    def _hidden_shape(self, name: str) -> tuple[int, ...]:
        assert isinstance(self.forward, MapSpec)
        over = self.forward.inputs[name].over
        return tuple(n if dim in over else 1 for dim, n in self.space.extents.items())

    @classmethod
    def limits(cls, subject: Subject) -> tuple[str, ...]:
        """Cells along the last axis that a pack holds; cells of a thread, and of a block."""
        return (*super().limits(subject), "last < pack", "cells < packs * pack", "cells < threads * packs * pack")

    def numbers(self, descriptor: Any, sku: KernelSku) -> Mapping[str, Any]:
        assert isinstance(sku.schedule, Schedule)
        extents = list(IndexSpace.of(descriptor).extent.values())
        sizes = {
            "cells": math.prod(extents),
            "last": extents[-1] if extents else 1,
            "pack": 16 // sku.element.row.bytes,
        }
        return {**vars(descriptor), **sizes, **dict(sku.schedule.numbers), "threads": sku.schedule.threads}

    @property
    def batch(self) -> int | None:
        """The field that the spec calls the batch: of a shape, its first extent, if it has one."""
        if (field := self.spec.tests.batch) is None:
            return None
        value = self.values[field]
        if isinstance(value, int):
            return value
        return int(value[0]) if value else None

    def with_batch(self, count: int) -> Problem:
        """The same problem with another batch."""
        field = str(self.spec.tests.batch)
        value = self.values[field]
        case = {**self.case, field: count if isinstance(value, int) else [count, *value[1:]]}
        return self.of_case(case)

    def depth(self, dims: tuple[str, ...], count: int) -> float:
        return float(self.plan.depth_of(dims, count))
