"""Running a plan on a problem whose every tensor was placed on purpose, and looking at what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, TensorView

from ..oracles.accuracy import numbers_of
from ..problems.problem import Arrays, Problem
from .memory import Buffer, Memory, Placed, laid_out, packed_along, place

Choice = Mapping[str, ElementKind]
Patterns = Mapping[str, str]


@dataclass
class Arranged:
    """A problem's tensors in memory, ready for `run`."""

    problem: Problem
    memory: Memory
    placed: dict[str, Placed]
    workspace: TensorView | None
    scratch: Buffer | None

    @property
    def arguments(self) -> dict[str, Any]:
        """A view of each argument that is present."""
        return {name: placed.view for name, placed in self.placed.items()}

    @property
    def passed(self) -> dict[str, Any]:
        """What `run` is given of each argument: a list of parts of the view, or None where there is none."""
        given: dict[str, Any] = dict.fromkeys(self.problem.spec.arguments)
        return given | {name: self.problem.passed(name, view) for name, view in self.arguments.items()}

    def run(self, plan: Any = None) -> Arrays:
        """Run, wait, check that nothing but outputs was written, and return the outputs."""
        (plan or self.problem.plan).run(**self.passed, workspace=self.workspace)
        self.memory.finish()
        written = self.problem.written
        for name, placed in self.placed.items():
            placed.check_surroundings(name, written=name in written)
        return {name: self.placed[name].values() for name in written}


def arrange(
    problem: Problem,
    arrays: Arrays,
    memory: Memory,
    *,
    patterns: Patterns | None = None,
    choice: Choice | None = None,
    shift_workspace: int = 0,
    poison_workspace: bool = True,
    further: int = 0,
) -> Arranged:
    """Place inputs with their values and outputs with poison; `patterns` says how (contiguous unless named).

    Arrays whose axes may lie anyhow begin `further` elements on.
    """
    stored_types, vec = problem.stored_types(choice), 16 // problem.element.row.bytes
    placed = {}
    for name in problem.arguments:
        values = arrays.get(name)
        shape = problem.shape_of(name) if values is None else values.shape
        pattern, axis = (patterns or {}).get(name, "contiguous"), problem.packed_axis(name)
        if axis is None:
            strides, shift = laid_out(pattern, shape, vec, problem.arguments[name].layout)
            shift += further
        else:
            strides, shift = packed_along(axis, pattern, shape, vec)
        kind = stored_types[name] if values is None else ElementKind(_tag(values))
        placed[name] = place(memory, shape, kind, strides, values, shift)
    needed = problem.plan.workspace_bytes
    if not needed:
        return Arranged(problem, memory, placed, None, None)
    scratch = memory.allocate(needed + shift_workspace + 32)
    if poison_workspace:
        scratch.write(np.full(needed + shift_workspace + 32, 0xFF, np.uint8))  # NaN in every floating type
    start = -(-scratch.pointer // 16) * 16 + shift_workspace
    view = TensorView(start, (needed,), (1,), ElementKind.U8, memory.name, False, None, scratch)
    return Arranged(problem, memory, placed, view, scratch)


def _tag(values: np.ndarray[Any, Any]) -> ElementKind:
    from baracuda.runtime.arrays.element import BY_NUMPY

    return BY_NUMPY[values.dtype]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays hold the same bits, any NaN counting as any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = numbers_of(np.ascontiguousarray(a)), numbers_of(np.ascontiguousarray(b))
    word = np.dtype(f"u{a.dtype.itemsize}")
    equal = a.view(word) == b.view(word)
    if a.dtype.kind not in "iub":
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        equal |= np.isnan(wide_a) & np.isnan(wide_b)
    return bool(equal.all())
