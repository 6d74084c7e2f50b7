"""What each instruction does to the lanes that execute it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from baracuda.runtime import KernelInternal

from . import memory_actions, warp_actions
from .group import Group, Run
from .lanes import DTYPES
from .memory import ORIGIN
from .module import Instruction
from .registers import Registers
from .values import no_row, row_of


def action_of(frame: Registers, instruction: Instruction) -> Run:
    """What an instruction does, by its name or by its row in the table."""
    name = instruction.opcode[0]
    action = _ACTIONS[name](frame, instruction) if name in _ACTIONS else None
    if action is not None:
        return action
    row = row_of(instruction.opcode)
    target, *sources = instruction.operands
    if len(sources) != len(row.operands):
        raise LookupError(f"{instruction}: {len(sources)} operands, its row in the table has {len(row.operands)}")
    readers = [frame.reader(*operand) for operand in zip(sources, row.operands, strict=True)]
    dtype, work = DTYPES[row.result], row.compute

    def compute(group: Group) -> None:
        value = work(*[read() for read in readers])
        frame.write(target, value if value.dtype == dtype else value.astype(dtype), group)

    return compute


def has_row(opcode: str) -> bool:
    """Whether the model knows an opcode like "cvt.rn.f16.f32"; of those that move data, it looks at the name alone."""
    parts = tuple(opcode.replace("::", ":").split("."))
    if parts[0] in {*_ACTIONS, "barrier", "bra", "ret", "exit"} and parts[0] != "mov":
        return True
    try:
        row_of(parts)
    except LookupError:
        return False
    return True


def _cp(frame: Registers, instruction: Instruction) -> Run:
    copies, name = frame.machine.copies, ".".join(instruction.opcode)
    operands = instruction.operands
    if name == "cp.async.commit_group":
        return lambda group: copies.commit(group.index)
    if name in ("cp.async.wait_all", "cp.async.wait_group"):
        allowed = int(operands[0]) if operands else None
        return lambda group: copies.wait(group.index, allowed)
    if name not in ("cp.async.ca.shared.global", "cp.async.cg.shared.global"):
        raise LookupError(no_row(instruction.opcode))
    size = int(operands[2])
    if size not in ((16,) if ".cg." in name else (4, 8, 16)):
        raise LookupError(f"{instruction}: copies of {size} bytes")
    (_, to_of), (_, from_of) = (frame.addresses(operand) for operand in operands[:2])

    def issue(group: Group) -> None:
        which = group.index
        taken = frame.read(operands[3] if len(operands) > 3 else str(size), "u32")[which].astype(np.int64)
        spaces = frame.machine.spaces
        to = spaces["shared"].places(to_of()[which], size, frame.machine.block[which])
        source = from_of()[which]
        read = taken > 0
        places = np.zeros(which.size, np.int64)
        if (source % size != 0).any():
            raise KernelInternal(f"{instruction}: a source is no multiple of {size}")
        frame.machine.touch(source[read] - ORIGIN, which[read], writes=False)
        places[read] = spaces["global"].places(source[read], 1, np.zeros(int(read.sum()), np.int64))
        spaces["global"].places(source[read] + taken[read] - 1, 1, np.zeros(int(read.sum()), np.int64))
        copies.issue(which, to, places, size, taken)

    return issue


def _griddepcontrol(frame: Registers, instruction: Instruction) -> Run:
    if instruction.opcode[1] not in ("wait", "launch_dependents"):
        raise LookupError(no_row(instruction.opcode))

    def control(group: Group) -> None:
        if instruction.opcode[1] == "wait":
            frame.machine.waited |= group.lanes

    return control


def _nothing(frame: Registers, instruction: Instruction) -> Run:
    return lambda group: None


def _trap(frame: Registers, instruction: Instruction) -> Run:
    def trap(group: Group) -> None:
        raise KernelInternal("trap")

    return trap


# An action is None where the table of values has a row instead.
_ACTIONS: dict[str, Callable[[Registers, Instruction], Run | None]] = {
    "mov": memory_actions.mov,
    "cvta": memory_actions.cvta,
    "ld": memory_actions.ld,
    "st": memory_actions.st,
    "call": memory_actions.call,
    "atom": memory_actions.atom,
    "red": memory_actions.atom,
    "shfl": warp_actions.shfl,
    "vote": warp_actions.vote,
    "match": warp_actions.match,
    "ldmatrix": warp_actions.ldmatrix,
    "stmatrix": warp_actions.stmatrix,
    "movmatrix": warp_actions.movmatrix,
    "mma": warp_actions.mma_sync,
    "cp": _cp,
    "griddepcontrol": _griddepcontrol,
    "bar": _nothing,  # of a warp; a frame has those of blocks
    "membar": _nothing,
    "fence": _nothing,
    "trap": _trap,
}
