"""Blocks that are alive at once and take turns: what waits for other blocks is right, what does not is noticed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from host import odd_patterns
from host.breaking import Edit, replaced
from host.jobs import Job, Tensor

from baracuda.runtime.errors import InvalidProblem, KernelInternal

SEEDS = range(4)
BETWEEN_BLOCKS = [name for name, build in odd_patterns.PATTERNS.items() if build().file == "patterns_of_blocks.cu"]
UNORDERED: dict[str, tuple[Callable[[], Job], Edit]] = {
    "turn": (odd_patterns.semaphore, replaced("while (atomicAdd(args.turn, 0u) != blockIdx.x) __nanosleep(50);", ";")),
    "mail": (odd_patterns.relay, replaced("while (args.flag[b - 1] == 0) __nanosleep(20);", "")),
    "last": (
        odd_patterns.fence_of_one_thread,
        replaced("atomicAdd(args.ticket, 1u) + 1 ==", "(atomicAdd(args.ticket, 1u), blockIdx.x + 1) =="),
    ),
    "status": (
        odd_patterns.look_back,
        replaced("while ((status = args.status[j]) == 0) __nanosleep(20);", "status = 1;"),
    ),
}


def grid_barrier(blocks: int) -> Job:
    x = np.arange(blocks, dtype=np.int32) + 1
    arrived = Tensor("arrived", "inout", np.zeros(1, np.uint32), blocks)
    part = Tensor("part", "workspace", x)
    tensors = Tensor("x", "in", x), part, Tensor("y", "out", x, x.sum()), arrived
    return Job("patterns_of_blocks.cu", "grid_barrier", blocks, 32, tensors, ("x", "part", "y", "arrived", 0))


@pytest.mark.parametrize("name", BETWEEN_BLOCKS)
def test_legal_patterns_are_right(device, name):
    device.blocks = "interleaved"
    for device.seed in SEEDS:
        odd_patterns.PATTERNS[name]().run(device)


@pytest.mark.parametrize("name", UNORDERED)
def test_missing_order_shows(device, name):
    """One after another, blocks are in order by luck; interleaved, some seed gives a wrong number."""
    build, edit = UNORDERED[name]
    job, wrong = build(), 0
    text = edit.apply(job.text)
    device.workers, device.blocks = 1, "interleaved"
    for device.seed in SEEDS:
        try:
            job.run(device, text)
        except KernelInternal:
            wrong += 1
    assert wrong


@pytest.mark.parametrize("check", [False, True])
def test_as_many_blocks_are_alive_as_fit(device, check):
    """A barrier of the grid works among as many blocks as there are multiprocessors, and hangs beyond."""
    device.check, device.blocks, device.timeout = check, "interleaved", 20
    grid_barrier(device.multiprocessors).run(device)
    device.timeout = 0.2
    with pytest.raises(KernelInternal, match="launch timeout"):
        grid_barrier(device.multiprocessors + 1).run(device)


def test_in_order_is_the_default(device):
    """Without a second OS thread, a block ends before the next one begins."""
    device.workers, device.timeout = 1, 0.2
    with pytest.raises(KernelInternal, match="launch timeout"):
        grid_barrier(2).run(device)
    device.blocks = "shuffled"
    with pytest.raises(InvalidProblem, match="'shuffled'; known are in order, interleaved"):
        grid_barrier(1).run(device)
