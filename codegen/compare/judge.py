"""One problem: the plan runs, torch computes, the difference is held against the declared bound; then again and again,
for the same bits."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind

from ..spec import BoundSpec
from ..verify.accuracy import Accuracy, compare
from ..verify.arrange import Arranged, arrange
from ..verify.checks import as_float
from ..verify.memory import Memory
from ..verify.problem import Arrays, Problem
from ..verify.subject import Subject
from .bounds import allowed
from .draw import Drawn, draw
from .expected import Expected, draw_hidden, expect

_LONGEST = 600  # characters of a message


@dataclass(frozen=True)
class Settings:
    """What a run does to each problem."""

    seed: int
    device: str
    limit: int
    repeats: int


@dataclass(frozen=True)
class Measured:
    """How an output compares: its worst error in units of the bound, and by itself; norms of error over value."""

    ratio: float
    error: float
    relative: float


@dataclass(frozen=True)
class Outcome:
    """What became of problem `index` of an op; `failure` is empty if all is well."""

    op: str
    index: int
    element: str = ""
    arch: str = ""
    kernel: str = ""
    descriptor: str = ""
    style: str = ""
    layouts: str = ""
    c1: float = 1.0
    c2: float = 1.0
    outputs: Mapping[str, Measured] = field(default_factory=dict)
    failure: str = ""
    fatal: bool = False  # whether the device is of no use to this process any more


class Wrong(Exception):
    """A result that is not what it should be."""


def judge(subject: Subject, index: int, settings: Settings, memory: Memory, torch_device: str) -> Outcome:
    """Draw problem `index` and judge the plan on it; whatever goes wrong is part of the outcome."""
    outputs: dict[str, Measured] = {}
    known: dict[str, Any] = {}
    try:
        drawn = draw(subject, settings.seed, index, settings.device, settings.limit)
        known = _described(drawn)
        _judge(drawn, memory, torch_device, settings.repeats, outputs)
    except Exception as error:
        dead = not _alive(memory)
        return Outcome(subject.spec.op, index, **known, outputs=outputs, failure=_message(error), fatal=dead)
    return Outcome(subject.spec.op, index, **known, outputs=outputs)


def _described(drawn: Drawn) -> dict[str, Any]:
    problem = drawn.problem
    bound = problem.spec.precision.bound.get(problem.element.value, BoundSpec())  # type: ignore[call-overload]
    sku, how = problem.plan.sku, {"style": drawn.style, "layouts": drawn.layouts}
    named = {"element": str(problem.element), "arch": sku.arch, "kernel": sku.symbol}
    return {**named, **how, "descriptor": str(problem.descriptor), "c1": bound.c1, "c2": bound.c2}


def _message(error: Exception) -> str:
    if isinstance(error, Wrong):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}"[:_LONGEST]
    return f"{text} ({Path(last.filename).name}:{last.lineno})"


def _alive(memory: Memory) -> bool:
    try:
        memory.finish()
    except Exception:  # a launch went wrong for good
        return False
    return True


def _judge(drawn: Drawn, memory: Memory, torch_device: str, repeats: int, outputs: dict[str, Measured]) -> None:
    problem = drawn.problem
    held = problem.held(drawn.choice)
    arrays = _inputs(drawn, held)
    hidden = draw_hidden(problem, drawn.style, drawn.seed)
    expected = expect(problem, arrays, hidden, held, torch_device)
    arranged = _placed(drawn, expected.arrays, memory)
    got = arranged.run()
    wrong = []
    bound = allowed(problem, expected, hidden, held)
    for name, accuracy in _accuracies(problem, expected, bound, got, held).items():
        outputs[name] = Measured(accuracy.worst_ratio, accuracy.max_error, accuracy.relative)
        if not accuracy.worst_ratio <= 1:
            wrong.append(f"{name!r} is wrong, {accuracy}")
    if wrong:
        raise Wrong("; ".join(wrong))
    _repeat(arranged, repeats - 1)


def _inputs(drawn: Drawn, held: Mapping[str, ElementKind]) -> Arrays:
    arrays = {}
    for name, array in drawn.problem.draw(drawn.style, drawn.seed).items():
        axis, stored = drawn.broadcast.get(name), array.astype(held[name].row.numpy)
        arrays[name] = stored if axis is None else np.broadcast_to(stored.take([0], axis), stored.shape)
    return arrays


def _placed(drawn: Drawn, arrays: Arrays, memory: Memory) -> Arranged:
    """Everything in memory as drawn, inputs of stride 0 with one number for all."""
    cut = {name: np.ascontiguousarray(arrays[name].take([0], axis)) for name, axis in drawn.broadcast.items()}
    arranged = arrange(
        drawn.problem,
        {**arrays, **cut},
        memory,
        patterns=drawn.patterns,
        choice=drawn.choice,
        shift_workspace=drawn.shift_workspace,
    )
    for name, axis in drawn.broadcast.items():
        view = arranged.placed[name].view
        strides = tuple(0 if i == axis else stride for i, stride in enumerate(view.strides))
        arranged.placed[name].view = view._replace(shape=arrays[name].shape, strides=strides)
    return arranged


def _accuracies(
    problem: Problem, expected: Expected, bound: Mapping[str, Any], got: Arrays, held: Mapping[str, ElementKind]
) -> dict[str, Accuracy]:
    found = {}
    for argument, name in problem.results.items():
        value = problem.flat(argument, as_float(got[argument]))
        found[argument] = compare(value, expected.exact[name], bound[argument], held[argument])
    return found


def _repeat(arranged: Arranged, times: int) -> None:
    """Run `times` more, on poison each time: outputs that are promised to be deterministic keep their bits."""
    problem, plan = arranged.problem, arranged.problem.plan
    names = {argument for argument, name in problem.results.items() if _deterministic(plan, argument, name)}
    if times < 1 or not names:
        return
    buffers: dict[str, Any] = {name: arranged.placed[name].buffer for name in problem.written}
    first = {name: buffers[name].array.copy() for name in sorted(names)}
    poison = {name: _poisoned(arranged, name) for name in buffers}
    arrays: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
    bound = plan.bind(**arrays, workspace=arranged.workspace)
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
    return any("deterministic" in plan.PROMISES.get(name, ()) for name in names)


def _poisoned(arranged: Arranged, name: str) -> Any:
    """A written tensor's buffer as it was before the first run, on its device."""
    placed = arranged.placed[name]
    buffer: Any = placed.buffer
    now = buffer.array.copy()
    buffer.write(placed.before)
    before = buffer.array.copy()
    buffer.array[:] = now
    return before
