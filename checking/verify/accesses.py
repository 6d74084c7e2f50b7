"""Memory accesses of kernels in the host device's check mode."""

from __future__ import annotations

import numpy as np

from baracuda.runtime import KernelInternal

from ..problems.problem import Problem
from ..trials.arrange import Choice, Patterns, arrange
from ..trials.memory import HostMemory, Memory
from .checks import choices_of

SMALL = 1 << 14  # elements: enough for checks that run a kernel dozens of times
ACCESS_PATTERNS = ("contiguous", "step", "transposed", "odd")


def check_accesses(problem: Problem, memory: HostMemory, *, thoroughly: bool) -> None:
    """Check mode finds nothing on packed arrays and, for small problems, in any layout.

    `thoroughly` adds every choice of stored types, and a switch to check mode after kernels were loaded without it.
    """
    if thoroughly:
        _check_switch(problem, memory)
    every = thoroughly if problem.spec.by_hand else problem.size <= SMALL
    for pattern in ACCESS_PATTERNS if every else ACCESS_PATTERNS[:1]:
        run_watched(problem, memory, dict.fromkeys(problem.arguments, pattern), {})
    for choice in choices_of(problem) if thoroughly else ():
        run_watched(problem, memory, {}, choice)


def check_beginnings(problem: Problem, memory: HostMemory) -> None:
    """Check mode finds nothing wherever in a pack arrays begin: packs around short rows reach into other rows."""
    for further in range(16 // problem.element.row.bytes):
        run_watched(problem, memory, {}, {}, further)


def run_watched(problem: Problem, memory: Memory, patterns: Patterns, choice: Choice, further: int = 0) -> None:
    """Run on arbitrary numbers: check mode judges addresses and their order."""
    types, rng = problem.stored_types(choice), np.random.default_rng(10)
    arrays = {n: a.astype(types[n].row.numpy) for n, a in problem.draw().items()}
    for name in problem.arguments:
        if name in problem.spec.inputs and name not in arrays:  # saved by a forward
            arrays[name] = np.asarray(rng.uniform(0.5, 2.0, problem.shape_of(name)), types[name].row.numpy)
    arrange(problem, arrays, memory, patterns=patterns, choice=choice, further=further).run()


def _check_switch(problem: Problem, memory: HostMemory) -> None:
    """A call that ran outside of check mode is checked in it: inputs that check mode is not told of are a finding.

    Where an array is empty, others need not be read: where all outputs are, nothing runs.
    """
    device, plan = memory.device, problem.plan
    is_full = all(0 not in problem.shape_of(n) for n in problem.arguments)
    inputs = [n for n in problem.arguments if is_full and not plan.ARGUMENTS[n].written]
    device._kernels.clear()  # check mode may have loaded some
    device.check = False
    try:
        run_watched(problem, memory, {}, {})
    finally:
        device.check = True
    run_watched(problem, memory, {}, {})
    of_all = plan._watched
    plan._watched = lambda *args: [array for array in of_all(*args) if array.name.partition("[")[0] not in inputs]
    try:
        run_watched(problem, memory, {}, {})
    except KernelInternal:
        return
    finally:
        del plan._watched
    if inputs:
        raise AssertionError(f"{plan.sku.symbol} on {problem.descriptor}: check mode does not see its inputs read")
