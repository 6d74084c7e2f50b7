"""A function's control flow: which lanes are where, branches and barriers of blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from baracuda.runtime import KernelInternal

from .actions import action_of
from .group import WARP, Group, Run
from .module import Function, Instruction
from .numbers import Lanes
from .registers import Registers
from .values import no_row

if TYPE_CHECKING:
    from .machine import Machine

_TURNS = 4096  # of a loop, after which others run: the loop may be waiting for them
_MOST = 4_000_000  # groups of lanes that run one after another before a launch counts as hanging


class Frame(Registers):
    """A function with its registers, and its instructions as what they do to some lanes."""

    def __init__(self, machine: Machine, function: Function) -> None:
        super().__init__(machine, function)
        self._leaders = set(function.labels.values())
        self._actions: dict[int, Run] = {}
        self.parked: dict[int, Lanes] = {}  # lanes at a barrier, by the instruction after it
        self._awaited = np.zeros(machine.count, np.int64)  # which

    def run(self, lanes: Lanes) -> None:
        """Run `lanes` until all of them have returned. Those that are furthest behind go first."""
        instructions, labels = self.function.instructions, self.function.labels
        waiting: dict[int, Lanes] = {0: lanes}
        turns: dict[int, int] = defaultdict(int)
        steps = 0

        def wait(at: int, more: Lanes) -> None:
            waiting[at] = waiting[at] | more if at in waiting else more

        while waiting:
            at = min(waiting)
            if turns[at] > _TURNS:  # a loop that waits for others
                turns.clear()
                at = max(waiting)
            turns[at] += 1
            steps += 1
            if steps > _MOST:
                raise KernelInternal(f"{self.function.name}: does not end")
            lanes = waiting.pop(at)
            group = Group(lanes, alone=not waiting and not self.parked)
            while at < len(instructions):
                instruction = instructions[at]
                name = instruction.opcode[0]
                active = lanes & self._guard(instruction) if instruction.guard else lanes
                if name == "bra":
                    if not instruction.guard or active.any():
                        wait(labels[instruction.operands[0]], active)
                    if instruction.guard and (rest := lanes & ~active).any():
                        wait(at + 1, rest)
                    break
                if name in ("ret", "exit"):
                    lanes = lanes & ~active
                elif name in ("bar", "barrier") and instruction.opcode[1] != "warp":
                    lanes = self._barrier(instruction, at, lanes, wait)
                else:
                    if (action := self._actions.get(at)) is None:
                        action = self._actions[at] = action_of(self, instruction)
                    if not instruction.guard:
                        action(group)
                    elif active.any():
                        action(Group(active, alone=False))
                at += 1
                if lanes is not group.lanes:
                    if not lanes.any():
                        break
                    group = Group(lanes, alone=False)
                if waiting and at in self._leaders:
                    wait(at, lanes)
                    break
        if self.parked:
            stuck = sum(int(lanes.sum()) for lanes in self.parked.values())
            raise KernelInternal(f"{self.function.name}: deadlock, {stuck} threads wait at a barrier")

    def _barrier(self, instruction: Instruction, at: int, group: Lanes, wait: Callable[[int, Lanes], None]) -> Lanes:
        """Lanes come to a named barrier; those that go on at once."""
        opcode, machine = instruction.opcode, self.machine
        if not {"sync", "arrive"} & set(opcode) or set(opcode) - {"bar", "barrier", "cta", "sync", "arrive", "aligned"}:
            raise LookupError(no_row(opcode))
        lanes = np.flatnonzero(group)
        number = self.read(instruction.operands[0], "u32")[lanes].astype(np.int64)
        if len(instruction.operands) > 1:
            expected = self.read(instruction.operands[1], "u32")[lanes].astype(np.int64)
        else:
            expected = np.full(lanes.size, machine.threads)
        if ((number < 0) | (number > 15)).any() or (len(instruction.operands) > 1 and (expected % WARP != 0).any()):
            seen = f"barrier {number[0]} of {expected[0]} threads"
            raise KernelInternal(f"{instruction}: {seen}; needs a number from 0 to 15 and whole warps")
        complete = machine.arrive(number, lanes, expected)
        if "arrive" not in opcode:
            key = at + 1
            self.parked[key] = self.parked[key] | group if key in self.parked else group
            self._awaited[lanes] = number
        for block, barrier in complete:
            for key, parked in list(self.parked.items()):
                freed = parked & (machine.block == block) & (self._awaited == barrier)
                if freed.any():
                    wait(key, freed)
                    self.parked[key] = parked & ~freed
                    if not self.parked[key].any():
                        del self.parked[key]
        return group if "arrive" in opcode else np.zeros_like(group)

    def _guard(self, instruction: Instruction) -> Lanes:
        negated = instruction.guard.startswith("!")
        predicate = self.read(instruction.guard.lstrip("!"), "pred")
        return ~predicate if negated else predicate
