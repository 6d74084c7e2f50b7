"""One run of a plan: inputs, their layout in memory, expected values and error bounds.

A trial needs no oracle, so that it can be saved and repeated.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind

from ..oracles.accuracy import Accuracy, as_float, compare
from ..problems.problem import Arrays, Problem
from .arrange import Arranged, Choice, Patterns, arrange
from .memory import Memory

_LONGEST = 600  # characters of a message


class Wrong(Exception):
    """A result that is not what it should be."""


@dataclass(frozen=True)
class Trial:
    """Inputs by name, in the caller's shapes and stored types; expected values and bounds by output, in the shapes of
    `Problem.flat`. Memory is contiguous except for `patterns` and `broadcast`.
    """

    problem: Problem
    inputs: Arrays
    exact: Mapping[str, Any]
    allowed: Mapping[str, Any]
    choice: Choice = field(default_factory=dict)
    patterns: Patterns = field(default_factory=dict)
    broadcast: Mapping[str, int] = field(default_factory=dict)  # inputs of stride 0, and along which axis
    shift_workspace: int = 0
    repeats: int = 1

    def measure(self, memory: Memory) -> dict[str, Accuracy]:
        """Run once and compare each output."""
        return self._compared(self._placed(memory).run())

    def verdict(self, memory: Memory) -> tuple[dict[str, Accuracy], str]:
        """Run, compare, and run again for the same bits: what was measured, and what is wrong or ""."""
        measured: dict[str, Accuracy] = {}
        try:
            arranged = self._placed(memory)
            measured |= self._compared(arranged.run())
            if wrong := wrong_in(measured):
                raise Wrong(wrong)
            _repeat(arranged, self.repeats - 1)
        except Exception as error:
            return measured, message_of(error)
        return measured, ""

    def _compared(self, outputs: Arrays) -> dict[str, Accuracy]:
        stored_types = self.problem.stored_types(self.choice)
        wide = {name: self.problem.flat(name, as_float(outputs[name])) for name in self.problem.results}
        seen = {n: compare(value, self.exact[n], self.allowed[n], stored_types[n]) for n, value in wide.items()}
        return {name: self._located(name, accuracy) for name, accuracy in seen.items()}

    def _located(self, name: str, accuracy: Accuracy) -> Accuracy:
        """With the index in the caller's array where the error exceeds its bound."""
        if accuracy.worst_ratio <= 1:
            return accuracy
        return replace(accuracy, index=self.problem.index_of(name, accuracy.index))

    def _placed(self, memory: Memory) -> Arranged:
        """Everything in memory, inputs of stride 0 with one number for all."""
        cut = {name: np.ascontiguousarray(self.inputs[name].take([0], axis)) for name, axis in self.broadcast.items()}
        arranged = arrange(
            self.problem,
            {**self.inputs, **cut},
            memory,
            patterns=self.patterns,
            choice=self.choice,
            shift_workspace=self.shift_workspace,
        )
        for name, axis in self.broadcast.items():
            view = arranged.placed[name].view
            strides = tuple(0 if i == axis else stride for i, stride in enumerate(view.strides))
            arranged.placed[name].view = view._replace(shape=self.inputs[name].shape, strides=strides)
        return arranged


def trial(
    problem: Problem,
    inputs: Arrays,
    exact: Mapping[str, Any],
    allowed: Mapping[str, Any],
    choice: Mapping[str, ElementKind] | None = None,
) -> Trial:
    """A trial in contiguous memory; `exact` is by the name that the program or definition gives a result."""
    return Trial(problem, inputs, {a: exact[n] for a, n in problem.results.items()}, allowed, choice or {})


def wrong_in(accuracies: Mapping[str, Accuracy]) -> str:
    """Which outputs are further off than their bounds allow, and by how much."""
    return "; ".join(f"{name!r} is wrong, {a}" for name, a in accuracies.items() if not a.worst_ratio <= 1)


def message_of(error: Exception) -> str:
    """What went wrong, in a line; of anything but a wrong result also where."""
    if isinstance(error, Wrong):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}"[:_LONGEST]
    return f"{text} ({Path(last.filename).name}:{last.lineno})"


def _repeat(arranged: Arranged, times: int) -> None:
    """Run `times` more, on poison each time: outputs that are promised to be deterministic keep their bits."""
    problem, plan = arranged.problem, arranged.problem.plan
    names = {argument for argument, name in problem.results.items() if _deterministic(plan, argument, name)}
    if times < 1 or not names:
        return
    buffers: dict[str, Any] = {name: arranged.placed[name].buffer for name in problem.written}
    first = {name: buffers[name].array.copy() for name in sorted(names)}
    poison = {name: _poisoned(arranged, name) for name in buffers}
    bound = plan.bind(**arranged.passed, workspace=arranged.workspace)
    changed = []
    for _ in range(times):
        for name, buffer in buffers.items():
            buffer.array[:] = poison[name]
        if arranged.scratch is not None:
            scratch: Any = arranged.scratch
            scratch.array[:] = 0xFF
        bound()
        changed.append({name: (buffers[name].array != before).any() for name, before in first.items()})
    arranged.memory.finish()
    for turn, flags in enumerate(changed):
        if other := [name for name, flag in flags.items() if flag]:
            raise Wrong(f"run {turn + 2} gives {other[0]!r} other bits than the first")


def _deterministic(plan: Any, *names: str) -> bool:
    return any("deterministic" in plan.promises.get(name, ()) for name in names)


def _poisoned(arranged: Arranged, name: str) -> Any:
    """A written tensor's buffer as it was before the first run, on its device."""
    placed = arranged.placed[name]
    buffer: Any = placed.buffer
    now = buffer.array.copy()
    buffer.write(placed.before)
    before = buffer.array.copy()
    buffer.array[:] = now
    return before
