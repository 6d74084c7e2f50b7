"""Memory accesses of kernels in the host device's check mode."""

from __future__ import annotations

import numpy as np

from ..problems.body import BodyProblem
from ..problems.problem import Problem
from ..trials.arrange import Choice, Patterns, arrange
from ..trials.memory import Memory
from .checks import choices_of

SMALL = 1 << 14  # elements: enough for checks that run a kernel dozens of times
ACCESS_PATTERNS = ("contiguous", "step", "transposed", "odd")


def check_accesses(problem: Problem, memory: Memory, *, thoroughly: bool) -> None:
    """Check mode finds nothing on packed arrays and, for small problems, in any layout.

    `thoroughly` adds every choice of stored types.
    """
    every = thoroughly if isinstance(problem, BodyProblem) else problem.size <= SMALL
    for pattern in ACCESS_PATTERNS if every else ACCESS_PATTERNS[:1]:
        run_watched(problem, memory, dict.fromkeys(problem.arguments, pattern), {})
    for choice in choices_of(problem) if thoroughly else ():
        run_watched(problem, memory, {}, choice)


def run_watched(problem: Problem, memory: Memory, patterns: Patterns, choice: Choice) -> None:
    """Run on arbitrary numbers: check mode judges addresses and their order."""
    types, rng = problem.stored_types(choice), np.random.default_rng(10)
    arrays = {n: a.astype(types[n].row.numpy) for n, a in problem.draw().items()}
    for name in problem.arguments:
        if name in problem.spec.inputs and name not in arrays:  # saved by a forward
            arrays[name] = np.asarray(rng.uniform(0.5, 2.0, problem.shape_of(name)), types[name].row.numpy)
    arrange(problem, arrays, memory, patterns=patterns, choice=choice).run()
