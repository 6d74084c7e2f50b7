"""Judges one problem: run the plan, compare with torch within the bound, then repeat for bitwise equality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..problems.problem import Arrays
from ..problems.subject import Subject
from ..trials.memory import Memory
from ..trials.trial import Trial, message_of
from .bounds import allowed
from .draw import Drawn, draw
from .expected import draw_hidden, expect
from .search import hardest


@dataclass(frozen=True)
class Settings:
    """What a run does to each problem."""

    seed: int
    device: str
    limit: int
    repeats: int
    search: int = 0


@dataclass(frozen=True)
class Measured:
    """Its worst error, in units of the bound and absolute, the norms of error over value; the factors of the bound."""

    ratio: float
    error: float
    relative: float
    c1: float = 1.0
    c2: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of problem `index` of an op; `failure` is empty on success."""

    op: str
    index: int
    element: str = ""
    arch: str = ""
    kernel: str = ""
    descriptor: str = ""
    style: str = ""
    layouts: str = ""
    outputs: Mapping[str, Measured] = field(default_factory=dict)
    failure: str = ""
    fatal: bool = False  # whether the device is of no use to this process any more


def judge(subject: Subject, index: int, settings: Settings, memory: Memory, torch_device: str) -> Outcome:
    """Draw problem `index` and judge the plan on it; errors become part of the outcome."""
    facts: dict[str, Any] = {}
    outputs: dict[str, Measured] = {}
    try:
        drawn = draw(subject, settings.seed, index, settings.device, settings.limit)
        facts = _described(drawn)
        measured, failure = trial_of(drawn, torch_device, settings, memory).verdict(memory)
        for name, a in measured.items():
            bound = drawn.problem.spec.bound_of(drawn.problem.results[name], drawn.problem.element)
            outputs[name] = Measured(a.worst_ratio, a.max_error, a.relative, bound.c1, bound.c2)
    except Exception as error:
        failure = message_of(error)
    is_dead = bool(failure) and not _alive(memory)
    return Outcome(subject.spec.op, index, **facts, outputs=outputs, failure=failure, fatal=is_dead)


def trial_of(drawn: Drawn, torch_device: str, settings: Settings, memory: Memory) -> Trial:
    """A drawn problem with its data and torch's results; with the hardest data that a search finds, if there is one."""
    problem = drawn.problem
    types = problem.stored_types(drawn.choice)
    hidden = draw_hidden(problem, drawn.style, drawn.seed)
    arrangement = drawn.choice, drawn.patterns, drawn.broadcast, drawn.shift_workspace

    def trial(inputs: Arrays) -> Trial:
        expected = expect(problem, _broadcast(drawn, inputs), hidden, types, torch_device)
        exact = {argument: expected.exact[name] for argument, name in problem.results.items()}
        bound = allowed(problem, expected, hidden, types)
        return Trial(problem, expected.arrays, exact, bound, *arrangement, repeats=settings.repeats)

    drawn_arrays = problem.draw(drawn.style, drawn.seed).items()
    inputs = {name: array.astype(types[name].row.numpy) for name, array in drawn_arrays}
    return hardest(trial, inputs, settings.search, drawn.seed, memory) if settings.search else trial(inputs)


def _described(drawn: Drawn) -> dict[str, Any]:
    problem = drawn.problem
    sku, numbers = problem.plan.sku, {"style": drawn.style, "layouts": drawn.layouts}
    kernel = {"element": str(problem.element), "arch": sku.arch, "kernel": sku.symbol}
    return {**kernel, **numbers, "descriptor": str(problem.descriptor)}


def _alive(memory: Memory) -> bool:
    try:
        memory.finish()
    except Exception:  # a launch went wrong for good
        return False
    return True


def _broadcast(drawn: Drawn, inputs: Arrays) -> Arrays:
    """With one number for all along an axis, where the memory has stride 0."""
    arrays = dict(inputs)
    for name, axis in drawn.broadcast.items():
        if name in arrays:
            arrays[name] = np.broadcast_to(inputs[name].take([0], axis), inputs[name].shape)
    return arrays
