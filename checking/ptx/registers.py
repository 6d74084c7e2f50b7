"""The registers of a function for every lane, and its operands."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .group import WARP, Group, Read
from .lanes import DTYPES
from .memory import LOCAL, SHARED
from .module import Function
from .numbers import Lanes

if TYPE_CHECKING:
    from .machine import Machine


class Registers:
    """A function's registers, each with a value for every lane of the machine."""

    def __init__(self, machine: Machine, function: Function) -> None:
        self.machine, self.function = machine, function
        self.registers: dict[str, Lanes] = {}
        self.storage: dict[str, Lanes] = {}  # of parameters that a call passes: bytes by lane
        for variable in function.variables:
            if variable.space == "param":
                self.storage[variable.name] = np.zeros((machine.count, variable.nbytes), np.uint8)

    def register(self, name: str) -> Lanes:
        """The bits of a register, of its own size."""
        if name not in self.registers:
            kind = self.function.registers.get(name) or self.function.registers.get(name.rstrip("0123456789"))
            if kind is None:
                raise LookupError(f"{name} is no register of {self.function.name}")
            dtype = np.dtype(np.bool_) if kind == "pred" else np.dtype(f"u{DTYPES[kind].itemsize}")
            self.registers[name] = np.zeros(self.machine.count, dtype)
        return self.registers[name]

    def read(self, operand: str, kind: str) -> Lanes:
        """An operand's values as a type: a register, a special one, a number or an address."""
        return np.broadcast_to(self.reader(operand, kind)(), self.machine.count)

    def read_bits(self, operand: str, size: int) -> Lanes:
        """A register's bits, or a number's as one of that size."""
        if self._names_register(operand):
            return self.register(operand)
        dtype = np.dtype(f"u{size}")
        if operand[:2].lower() in ("0f", "0d"):
            return np.full(self.machine.count, int(operand[2:], 16), dtype)
        return np.ascontiguousarray(self.read(operand, f"b{8 * size}"))

    def _names_register(self, operand: str) -> bool:
        """Whether it is one of the compiler's, or of a block of inline PTX."""
        of_block = operand in self.function.registers
        return of_block or (operand.startswith("%") and operand not in self.machine.special)

    def reader(self, operand: str, kind: str) -> Read:
        """What reads an operand; a number is one for all lanes."""
        dtype = DTYPES[kind]
        if operand in self.machine.special:
            values = self.machine.special[operand].astype(dtype)
        elif operand.startswith("!"):
            positive = self.reader(operand[1:], kind)
            return lambda: ~positive()
        elif self._names_register(operand):
            register = self.register(operand)
            if dtype.kind != "b" and register.dtype.itemsize != dtype.itemsize:
                if register.dtype.itemsize < dtype.itemsize:
                    raise LookupError(f"a register of {register.dtype.itemsize} bytes as {kind}")
                return lambda: register.astype(f"u{dtype.itemsize}").view(dtype)
            values = register.view(dtype)
        else:
            values = self._constant(operand, dtype)
        return lambda: values

    def write(self, operand: str, values: Lanes, group: Group) -> None:
        """Set a register of some lanes; a narrower value is extended by its sign."""
        if operand == "_":
            return
        register = self.register(operand)
        if values.dtype.itemsize == register.dtype.itemsize:
            register = register.view(values.dtype)
        elif values.dtype.kind != "b":
            values = values.astype(f"{values.dtype.kind}{register.dtype.itemsize}")
            register = register.view(values.dtype)
        if group.alone:
            register[...] = values
        else:
            np.copyto(register, values, where=group.lanes)

    def addresses(self, operand: str) -> tuple[str, Callable[[], Lanes]]:
        """The space of a bracketed operand, if it is a variable's, and its addresses."""
        base, _, offset = operand[1:-1].replace(" ", "").partition("+")
        shift = int(offset or 0)
        if base.startswith("%"):
            return "", lambda: self.register(base).astype(np.int64) + shift
        if base.lstrip("-")[:1].isdigit():
            return "", lambda: np.full(self.machine.count, int(base, 0) + shift, np.int64)
        space, address = self._address(base)
        return space, lambda: np.full(self.machine.count, address + shift, np.int64)

    def places(
        self, space: str, addresses: Lanes, lanes: Lanes, size: int, *, writes: bool = False
    ) -> list[tuple[str, Lanes, Lanes]]:
        """Each space that some lanes access, the positions of those lanes in `lanes`, and the places there."""
        machine, accessed = self.machine, []
        space = "global" if space in ("const", "param") else space
        kinds = np.where(addresses >= LOCAL, 2, np.where(addresses >= SHARED, 1, 0))
        for kind, (name, base) in enumerate((("global", 0), ("shared", SHARED), ("local", LOCAL))):
            which = np.flatnonzero(kinds == kind) if not space else np.arange(lanes.size * (name == space))
            if which.size:
                owners = machine.owners(name)[lanes[which]]
                places = machine.spaces[name].places(addresses[which] - (0 if space else base), size, owners)
                if name == "global":
                    machine.touch(places, lanes[which], writes=writes)
                accessed.append((name, which, places))
        return accessed

    def _constant(self, operand: str, dtype: np.dtype[Any]) -> Lanes:
        if operand[:2].lower() == "0f":
            return np.array(struct.unpack("<f", struct.pack("<I", int(operand[2:], 16)))[0], np.float32).astype(dtype)
        if operand[:2].lower() == "0d":
            return np.array(struct.unpack("<d", struct.pack("<Q", int(operand[2:], 16)))[0], np.float64).astype(dtype)
        if operand == "WARP_SZ":
            return np.array(WARP, dtype)
        if operand.lstrip("-")[:1].isdigit():
            number = int(operand.rstrip("U"), 0)
            if dtype.kind == "b":
                return np.array(bool(number))
            if dtype.kind == "f":
                return np.array(number, dtype)
            return np.array(number % 2 ** (8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)
        return np.array(self._address(operand)[1]).astype(dtype)

    def _address(self, name: str) -> tuple[str, int]:
        """The space of a variable and its address there."""
        if name in self.machine.symbols:
            return self.machine.symbols[name]
        raise LookupError(f"{name} is no variable of {self.function.name}")
