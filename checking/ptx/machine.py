"""Runs the lanes of a launch through a function's PTX, all that are at the same instruction at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from baracuda.runtime import KernelInternal

from .copies import Copies
from .frame import Frame
from .group import WARP
from .memory import Space, own_space
from .module import Function, Module, Variable
from .numbers import Lanes


class Machine:
    """The lanes of some blocks of a launch; `symbols` are addresses of variables and of the parameter."""

    def __init__(
        self,
        module: Module,
        memory: Space,
        symbols: dict[str, tuple[str, int]],
        shared_bytes: int,
        grid: tuple[int, int, int],
        threads: int,
        blocks: Lanes,
    ) -> None:
        per_block = -(-threads // WARP) * WARP
        every = [variable for function in module.functions.values() for variable in function.variables]
        local, local_bytes = placed((v for v in every if v.space == "local"), "local")
        self.module, self.symbols, self.count = module, symbols | local, blocks.size * per_block
        thread = np.tile(np.arange(per_block, dtype=np.int64), blocks.size)
        self.block = np.repeat(np.arange(blocks.size, dtype=np.int64), per_block)
        self.lane = np.arange(self.count, dtype=np.int64)
        self.alive = thread < threads
        self.threads, self.per_block = threads, per_block
        index = blocks[self.block]
        numbers: dict[str, Any] = {
            "%tid.x": thread,
            "%tid.y": 0,
            "%tid.z": 0,
            "%ntid.x": threads,
            "%ntid.y": 1,
            "%ntid.z": 1,
            "%ctaid.x": index % grid[0],
            "%ctaid.y": index // grid[0] % grid[1],
            "%ctaid.z": index // grid[0] // grid[1],
            "%nctaid.x": grid[0],
            "%nctaid.y": grid[1],
            "%nctaid.z": grid[2],
            "%laneid": thread % WARP,
            "%warpid": thread // WARP,
        }
        self.special = {name: np.broadcast_to(np.asarray(x, np.uint32), self.count) for name, x in numbers.items()}
        self.spaces = {
            "global": memory,
            "shared": own_space("shared", blocks.size, shared_bytes),
            "local": own_space("local", self.count, local_bytes),
        }
        self.earlier: frozenset[int] = frozenset()  # ranges that the launch before writes, which may not have ended
        self.written: set[int] = set()  # ranges that this one writes
        self.waited = np.zeros(self.count, np.bool_)  # lanes after griddepcontrol.wait
        self.copies = Copies(self.count, self.spaces["shared"], memory)
        self._arrived: dict[tuple[int, int], int] = defaultdict(int)
        self._frames: dict[str, Frame] = {}

    def run(self, entry: str) -> None:
        """To the end of every lane; raises KernelInternal for what a GPU would not do."""
        with np.errstate(all="ignore"):
            self.call(self.module.functions[entry], self.alive.copy(), {})
        if self.copies.pending.any():
            raise KernelInternal("a thread exits while its cp.async is in flight")

    def call(self, function: Function, lanes: Lanes, storage: dict[str, Lanes]) -> None:
        """Run `lanes` through `function`; `storage` holds the bytes of its parameters and results, by name."""
        frame = self._frames.get(function.name)
        if frame is None:
            frame = self._frames[function.name] = Frame(self, function)
        frame.storage.update(storage)
        frame.run(lanes)

    def owners(self, space: str) -> Lanes:
        return self.block if space == "shared" else self.lane if space == "local" else np.zeros(self.count, np.int64)

    def touch(self, places: Lanes, lanes: Lanes, *, writes: bool) -> None:
        """Note an access to global memory; raises KernelInternal if it had to wait for the launch before."""
        if not writes and (not self.earlier or self.waited[lanes].all()):
            return
        ranges = self.spaces["global"].ranges_of(places)
        if self.earlier and np.isin(ranges[~self.waited[lanes]], list(self.earlier)).any():
            raise KernelInternal("accesses what the launch before it writes, without griddepcontrol.wait")
        if writes:
            self.written.update(np.unique(ranges).tolist())

    def arrive(self, barrier: Lanes, lanes: Lanes, expected: Lanes) -> Lanes:
        """Lanes come to barriers of their blocks; the (block, barrier) pairs that are complete now, as rows."""
        complete = []
        pairs, counts = np.unique(np.stack([self.block[lanes], barrier]), axis=1, return_counts=True)
        for block, number, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
            needed = int(expected[(self.block[lanes] == block) & (barrier == number)][0])
            self._arrived[block, number] += count
            if self._arrived[block, number] > needed:
                raise KernelInternal(f"{self._arrived[block, number]} threads come to barrier {number} of {needed}")
            if self._arrived[block, number] == needed:
                self._arrived[block, number] = 0
                complete.append((block, number))
        return np.array(complete, np.int64).reshape(-1, 2)


def placed(variables: Iterable[Variable], space: str) -> tuple[dict[str, tuple[str, int]], int]:
    """The address of each variable in a space of its own, and how many bytes they take."""
    at, places = 0, {}
    for variable in variables:
        at = -(-at // variable.align) * variable.align
        places[variable.name] = (space, at)
        at += variable.nbytes
    return places, at
