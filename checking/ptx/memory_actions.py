"""Instructions that move data: between registers, to and from memory, and between functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .group import Group, Run
from .lanes import DTYPES
from .memory import LOCAL, SHARED
from .module import Instruction, listed
from .numbers import Lanes
from .registers import Registers
from .values import no_row

_ORDERS = ("volatile", "weak", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys")
_CACHES = ("nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L2:64B", "L2:128B", "L2:256B", "L1:no_allocate")
_UPDATES: dict[str, Callable[..., Lanes]] = {
    "add": lambda old, x: old + x,
    "min": lambda old, x: np.minimum(old, x),
    "max": lambda old, x: np.maximum(old, x),
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda old, x: x,
    "cas": lambda old, expected, x: np.where(old == expected, x, old),
    "inc": lambda old, x: np.where(old >= x, 0, old + 1),
    "dec": lambda old, x: np.where((old == 0) | (old > x), x, old - 1),
}


def mov(frame: Registers, instruction: Instruction) -> Run | None:
    """Vectors are packed into a register or taken apart; `row_of` has the rest."""
    target, source = instruction.operands
    kind = instruction.opcode[-1]
    if target.startswith("{"):
        parts = listed(target)
        width = 8 * DTYPES[kind].itemsize // len(parts)

        def unpack(group: Group) -> None:
            whole = frame.read(source, kind)
            for i, part in enumerate(parts):
                bits = whole >> whole.dtype.type(i * width)
                frame.write(part, bits.astype(f"u{width // 8}"), group)

        return unpack
    if source.startswith("{"):
        parts = listed(source)
        size = DTYPES[kind].itemsize // len(parts)

        def pack(group: Group) -> None:
            whole = np.zeros(frame.machine.count, DTYPES[kind])
            for i, part in enumerate(parts):
                bits = frame.read(part, f"b{8 * size}").astype(whole.dtype)
                whole |= bits << whole.dtype.type(8 * size * i)
            frame.write(target, whole, group)

        return pack
    if source.startswith("%") or source.lstrip("-")[:1].isdigit():
        return None
    read = frame.reader(source, kind)
    return lambda group: frame.write(target, read(), group)


def cvta(frame: Registers, instruction: Instruction) -> Run:
    to, space = "to" in instruction.opcode, instruction.opcode[-2]
    base = {"shared": SHARED, "local": LOCAL, "global": 0, "param": 0, "const": 0}[space]
    target, source = instruction.operands

    def convert(group: Group) -> None:
        address = frame.read(source, "u64")
        frame.write(target, address - np.uint64(base) if to else address + np.uint64(base), group)

    return convert


def ld(frame: Registers, instruction: Instruction) -> Run:
    space, kind, registers, size = _moves(instruction)
    operand = instruction.operands[1]
    if space == "param" and (name := operand[1:-1].partition("+")[0].strip()) in frame.storage:
        start = int(operand[1:-1].partition("+")[2] or 0)
        return lambda group: frame.write(registers[0], _field(frame.storage[name], start, DTYPES[kind]), group)
    of_variable, addresses_of = frame.addresses(operand)

    def load(group: Group) -> None:
        which = group.index
        addresses = addresses_of()[which]
        values = np.zeros((len(registers), which.size), f"u{size}")
        resolved = frame.places(space or of_variable, addresses, which, size * len(registers))
        for name, some, places in resolved:
            for i in range(len(registers)):
                values[i, some] = frame.machine.spaces[name].load(places + i * size, size)
        whole = np.zeros(frame.machine.count, DTYPES[kind])
        for register, value in zip(registers, values, strict=True):
            whole[which] = value.view(DTYPES[kind])
            frame.write(register, whole, group)

    return load


def st(frame: Registers, instruction: Instruction) -> Run:
    space, kind, registers, size = _moves(instruction)
    operand = instruction.operands[0]
    if space == "param" and (name := operand[1:-1].partition("+")[0].strip()) in frame.storage:
        start = int(operand[1:-1].partition("+")[2] or 0)
        dtype = DTYPES[kind]

        def pass_on(group: Group) -> None:
            values = np.ascontiguousarray(_low(frame.read_bits(registers[0], size), size)).view(np.uint8)
            target = frame.storage[name][:, start : start + dtype.itemsize]
            np.copyto(target, values.reshape(frame.machine.count, -1), where=group.lanes[:, None])

        return pass_on
    of_variable, addresses_of = frame.addresses(operand)

    def store(group: Group) -> None:
        which = group.index
        addresses = addresses_of()[which]
        values = [_low(frame.read_bits(register, size)[which], size) for register in registers]
        for name, some, places in frame.places(
            space or of_variable, addresses, which, size * len(registers), writes=True
        ):
            for i, value in enumerate(values):
                frame.machine.spaces[name].store(places + i * size, value[some])

    return store


def call(frame: Registers, instruction: Instruction) -> Run:
    results = listed(instruction.operands[0]) if instruction.operands[0].startswith("(") else []
    name, *rest = instruction.operands[len(results) > 0 :]
    params = listed(rest[0]) if rest else []
    function = frame.machine.module.functions[name]
    for result in results:
        frame.storage.setdefault(result, np.zeros((frame.machine.count, function.results[0].nbytes), np.uint8))

    def call(group: Group) -> None:
        passed = zip([*function.params, *function.results], [*params, *results], strict=True)
        storage = {formal.name: frame.storage[given] for formal, given in passed}
        frame.machine.call(function, group.lanes, storage)

    return call


def atom(frame: Registers, instruction: Instruction) -> Run:
    opcode = instruction.opcode
    space = next((part for part in opcode if part in ("global", "shared")), "")
    left = [part for part in opcode[1:-1] if part != space and part not in _ORDERS]
    returns = opcode[0] == "atom"
    if len(left) != 1 or left[0] not in _UPDATES:
        raise LookupError(no_row(opcode))
    update, kind, size = _UPDATES[left[0]], opcode[-1], DTYPES[opcode[-1]].itemsize
    target = instruction.operands[0] if returns else "_"
    operand, *sources = instruction.operands[returns:]
    of_variable, addresses_of = frame.addresses(operand)

    def apply(group: Group) -> None:
        which = group.index
        values = [frame.read(source, kind)[which] for source in sources]
        whole = np.zeros(frame.machine.count, DTYPES[kind])
        for name, some, places in frame.places(space or of_variable, addresses_of()[which], which, size, writes=True):
            memory = frame.machine.spaces[name]
            for i, place in zip(some, places, strict=True):
                old = memory.load(place[None], size).view(DTYPES[kind])
                new = np.asarray(update(old, *(each[i : i + 1] for each in values)), DTYPES[kind])
                memory.store(place[None], new.view(f"u{size}"))
                whole[which[i]] = old[0]
        frame.write(target, whole, group)

    return apply


def _moves(instruction: Instruction) -> tuple[str, str, list[str], int]:
    """Space, type, registers and bytes of a register of a load or store."""
    opcode = instruction.opcode
    space = next((part for part in opcode if part in ("global", "shared", "local", "param", "const")), "")
    space = next((part.partition(":")[0] for part in opcode if part.startswith("shared:")), space)
    if left := set(opcode[1:-1]) - {space, *_ORDERS, *_CACHES, "v2", "v4", "v8"}:
        raise LookupError(f"{no_row(opcode)} with {sorted(left)[0]!r}")
    operand = instruction.operands[0 if opcode[0] == "ld" else 1]
    registers = listed(operand) if operand.startswith("{") else [operand]
    if len(registers) != next((int(part[1:]) for part in opcode if part in ("v2", "v4", "v8")), 1):
        raise LookupError(f"{instruction}: {len(registers)} registers")
    return space, opcode[-1], registers, DTYPES[opcode[-1]].itemsize


def _low(values: Lanes, size: int) -> Lanes:
    return values if values.dtype.itemsize == size else values.astype(f"u{size}")


def _field(storage: Lanes, start: int, dtype: np.dtype[Any]) -> Lanes:
    """A number of each lane's bytes."""
    return np.ascontiguousarray(storage[:, start : start + dtype.itemsize]).view(dtype)[:, 0]
