"""Instructions of whole warps: exchanges, votes and matrices."""

from __future__ import annotations

import numpy as np

from baracuda.runtime import KernelInternal

from .group import WARP, Group, Run
from .module import Instruction, listed
from .numbers import Lanes
from .registers import Registers
from .values import no_row
from .warps import fragment_of, matches, matrix_of, mma, shuffled, votes


def shfl(frame: Registers, instruction: Instruction) -> Run:
    _, _, mode, kind = instruction.opcode
    target, source, by, clamp, mask = instruction.operands
    target, _, inside = target.partition("|")

    def exchange(group: Group) -> None:
        _whole_warps(frame, instruction, group.lanes, _members(frame, mask, group.lanes))
        lane, limit = (_by_warp(frame, operand, "u32").astype(np.int64) for operand in (by, clamp))
        values, within = shuffled(mode, _by_warp(frame, source, kind), lane, limit)
        frame.write(target, values.reshape(-1), group)
        if inside:
            frame.write(inside, within.reshape(-1), group)

    return exchange


def vote(frame: Registers, instruction: Instruction) -> Run:
    mode = instruction.opcode[2]
    target, predicate, mask = instruction.operands

    def vote(group: Group) -> None:
        member = _members(frame, mask, group.lanes)
        _whole_warps(frame, instruction, group.lanes, member)
        frame.write(target, votes(mode, _by_warp(frame, predicate, "pred"), member).reshape(-1), group)

    return vote


def match(frame: Registers, instruction: Instruction) -> Run:
    _, mode, _, kind = instruction.opcode
    target, value, mask = instruction.operands
    if mode != "any":
        raise LookupError(no_row(instruction.opcode))

    def match(group: Group) -> None:
        member = _members(frame, mask, group.lanes)
        _whole_warps(frame, instruction, group.lanes, member)
        frame.write(target, matches(_by_warp(frame, value, kind), member).reshape(-1), group)

    return match


def ldmatrix(frame: Registers, instruction: Instruction) -> Run:
    return _matrices(frame, instruction, instruction.operands[1], instruction.operands[0])


def stmatrix(frame: Registers, instruction: Instruction) -> Run:
    return _matrices(frame, instruction, *instruction.operands)


def _matrices(frame: Registers, instruction: Instruction, address: str, fragment: str) -> Run:
    """Matrices of 8 x 8 halves; lanes 8 i to 8 i + 7 have the addresses of the rows of the i-th."""
    opcode, counts = instruction.opcode, {"x1": 1, "x2": 2, "x4": 4}
    known = opcode[1:4] == ("sync", "aligned", "m8n8") and opcode[4] in counts and opcode[-1] == "b16"
    if not known or opcode[5:-1] not in (("shared",), ("trans", "shared")):
        raise LookupError(no_row(opcode))
    registers, shared = listed(fragment), frame.machine.spaces["shared"]
    _, addresses_of = frame.addresses(address)
    if len(registers) != counts[opcode[4]]:
        raise LookupError(f"{instruction}: {len(registers)} registers")
    axes = (0, 2, 1) if "trans" in opcode else (0, 1, 2)

    def move(group: Group) -> None:
        present = _whole_warps(frame, instruction, group.lanes)
        warps = np.flatnonzero(present.any(axis=1))
        blocks = frame.machine.block.reshape(-1, WARP)[warps, :8]
        for i, register in enumerate(registers):
            rows = addresses_of().reshape(-1, WARP)[warps, 8 * i : 8 * i + 8]
            places = shared.places(rows.reshape(-1), 16, blocks.reshape(-1)).reshape(rows.shape)
            if opcode[0] == "stmatrix":
                matrix = matrix_of(_by_warp(frame, register, "u32")[warps]).transpose(axes)
                for column in range(8):
                    shared.store(places + 2 * column, np.ascontiguousarray(matrix[:, :, column]))
                continue
            matrix = np.stack([shared.load(places + 2 * column, 2) for column in range(8)], axis=2)
            whole = np.zeros((present.shape[0], WARP), np.uint32)
            whole[warps] = fragment_of(matrix.transpose(axes))
            frame.write(register, whole.reshape(-1), group)

    return move


def movmatrix(frame: Registers, instruction: Instruction) -> Run:
    if instruction.opcode != ("movmatrix", "sync", "aligned", "m8n8", "trans", "b16"):
        raise LookupError(no_row(instruction.opcode))
    target, source = instruction.operands

    def move(group: Group) -> None:
        _whole_warps(frame, instruction, group.lanes)
        matrix = matrix_of(_by_warp(frame, source, "u32")).transpose(0, 2, 1)
        frame.write(target, fragment_of(matrix).reshape(-1), group)

    return move


def mma_sync(frame: Registers, instruction: Instruction) -> Run:
    opcode = instruction.opcode
    if opcode[:3] != ("mma", "sync", "aligned"):
        raise LookupError(no_row(opcode))
    d, *sources = (listed(operand) for operand in instruction.operands)
    factors = "f64" if opcode[-2] == "f64" else "b32"
    kinds = (factors, factors, opcode[-1])

    def multiply(group: Group) -> None:
        _whole_warps(frame, instruction, group.lanes)
        words = [
            np.stack([_by_warp(frame, register, kind) for register in registers])
            for registers, kind in zip(sources, kinds, strict=True)
        ]
        product = mma(".".join(opcode[3:]), *words)
        for register, values in zip(d, product, strict=True):
            frame.write(register, values.reshape(-1), group)

    return multiply


def _by_warp(frame: Registers, operand: str, kind: str) -> Lanes:
    return np.ascontiguousarray(frame.read(operand, kind)).reshape(-1, WARP)


def _whole_warps(frame: Registers, instruction: Instruction, lanes: Lanes, member: Lanes | None = None) -> Lanes:
    """The lanes by warp; raises KernelInternal where one that takes part is elsewhere."""
    present = lanes.reshape(-1, WARP)
    active = present.any(axis=1)
    needed = np.ones_like(present) if member is None else member
    if (active[:, None] & needed & ~present).any():
        raise KernelInternal(f"{instruction}: lanes of a warp that take part are elsewhere")
    return present


def _members(frame: Registers, operand: str, lanes: Lanes) -> Lanes:
    """The lanes that each warp's mask names, as its first active lane has it."""
    masks, present = _by_warp(frame, operand, "u32"), lanes.reshape(-1, WARP)
    first = masks[np.arange(masks.shape[0]), present.argmax(axis=1)]
    return (first[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)).astype(np.bool_)
