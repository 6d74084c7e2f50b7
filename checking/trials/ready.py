"""Compiling what trials will run, by all cores: NVRTC and compilers of the host run outside the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from ..problems.problem import Problem
from .arrange import arrange
from .memory import Memory


def bind(problem: Problem, memory: Memory) -> None:
    """Compile and load what runs for arrays without gaps."""
    arranged = arrange(problem, {}, memory)
    problem.plan.bind(**arranged.passed, workspace=arranged.workspace)


def in_threads(tasks: Iterable[Callable[[], None]], step: Callable[[], None]) -> None:
    """Do all, and call `step` after each."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(lambda task: task(), tasks):
            step()
