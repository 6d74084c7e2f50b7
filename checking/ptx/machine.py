"""Runs the lanes of a launch through a function's PTX, all that are at the same instruction at once."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from baracuda.runtime import KernelInternal

from .memory import LOCAL, ORIGIN, SHARED, Space, own_space
from .module import Function, Instruction, Module, Variable
from .numbers import Lanes
from .values import DTYPES, no_row, row_of
from .warps import fragment_of, matrix_of, mma, shuffled, votes

WARP = 32
_TURNS = 4096  # of a loop, after which others run: the loop may be waiting for them
_MOST = 4_000_000  # groups of lanes that run one after another before a launch counts as hanging



class Group:
    """The lanes that execute an instruction. `alone`: registers of other lanes do not matter any more."""

    __slots__ = ("_index", "alone", "lanes")

    def __init__(self, lanes: Lanes, *, alone: bool) -> None:
        self.lanes, self.alone = lanes, alone
        self._index: Lanes = None

    @property
    def index(self) -> Lanes:
        """The lanes' numbers."""
        if self._index is None:
            self._index = np.flatnonzero(self.lanes)
        return self._index


Run = Callable[[Group], None]
Read = Callable[[], Lanes]


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
        self.copies = _Copies(self)
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


class _Copies:
    """What cp.async has been asked to copy: it arrives as late as it may."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._committed = np.zeros(machine.count, np.int64)
        self._copies: list[tuple[Lanes, Lanes, Lanes, Lanes, int, Lanes]] = []

    @property
    def pending(self) -> Lanes:
        return np.concatenate([np.zeros(0, np.int64), *(lanes for lanes, *_ in self._copies)])

    def issue(self, lanes: Lanes, to: Lanes, source: Lanes, size: int, taken: Lanes) -> None:
        shared = self._machine.spaces["shared"]
        for byte in range(size):
            shared.store(to + byte, np.full(to.size, 0xFF, np.uint8))
        self._copies.append((lanes, self._committed[lanes], to, source, size, taken))

    def commit(self, lanes: Lanes) -> None:
        self._committed[lanes] += 1

    def wait(self, lanes: Lanes, allowed: int | None) -> None:
        """Complete all but the last `allowed` groups; None: also what is not committed."""
        waits = np.zeros(self._machine.count, np.bool_)
        waits[lanes] = True
        left = []
        for owner, group, to, source, size, taken in self._copies:
            done = waits[owner]
            if allowed is not None:
                done &= group < self._committed[owner] - allowed
            self._complete(to[done], source[done], size, taken[done])
            if not done.all():
                left.append((owner[~done], group[~done], to[~done], source[~done], size, taken[~done]))
        self._copies = left

    def _complete(self, to: Lanes, source: Lanes, size: int, taken: Lanes) -> None:
        shared, memory = self._machine.spaces["shared"], self._machine.spaces["global"]
        for byte in range(size):
            values = np.zeros(to.size, np.uint8)
            has = byte < taken
            values[has] = memory.load(source[has] + byte, 1)
            shared.store(to + byte, values)


class Frame:
    """The registers of a function for every lane, and its instructions as what they do to some lanes."""

    def __init__(self, machine: Machine, function: Function) -> None:
        self.machine, self.function = machine, function
        self.registers: dict[str, Lanes] = {}
        self.storage: dict[str, Lanes] = {}  # of parameters that a call passes: bytes by lane
        for variable in function.variables:
            if variable.space == "param":
                self.storage[variable.name] = np.zeros((machine.count, variable.nbytes), np.uint8)
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
                        action = self._actions[at] = self._action(instruction)
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

    # Operands.

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

    def reader(self, operand: str, kind: str) -> Read:
        """What reads an operand; a number is one for all lanes."""
        dtype = DTYPES[kind]
        if operand in self.machine.special:
            values = self.machine.special[operand].astype(dtype)
        elif operand.startswith("!"):
            positive = self.reader(operand[1:], kind)
            return lambda: ~positive()
        elif operand.startswith("%"):
            register = self.register(operand)
            if dtype.kind != "b" and register.dtype.itemsize != dtype.itemsize:
                if register.dtype.itemsize < dtype.itemsize:
                    raise LookupError(f"a register of {register.dtype.itemsize} bytes as {kind}")
                return lambda: register.astype(f"u{dtype.itemsize}").view(dtype)
            values = register.view(dtype)
        else:
            values = self._constant(operand, dtype)
        return lambda: values

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

    # Instructions.

    def _action(self, instruction: Instruction) -> Run:
        name = instruction.opcode[0]
        action: Run | None = getattr(self, f"_{name}")(instruction) if name in _ACTIONS else None
        if action is not None:
            return action
        row = row_of(instruction.opcode)
        target, *sources = instruction.operands
        if len(sources) != len(row.operands):
            raise LookupError(f"{instruction}: {len(sources)} operands, its row in the table has {len(row.operands)}")
        readers = [self.reader(*operand) for operand in zip(sources, row.operands, strict=True)]
        dtype, work = DTYPES[row.result], row.compute

        def compute(group: Group) -> None:
            value = work(*[read() for read in readers])
            self.write(target, value if value.dtype == dtype else value.astype(dtype), group)

        return compute

    def _mov(self, instruction: Instruction) -> Run | None:
        """Vectors are packed into a register or taken apart; `row_of` has the rest."""
        target, source = instruction.operands
        kind = instruction.opcode[-1]
        if target.startswith("{"):
            parts = _list(target)
            width = 8 * DTYPES[kind].itemsize // len(parts)

            def unpack(group: Group) -> None:
                whole = self.read(source, kind)
                for i, part in enumerate(parts):
                    bits = whole >> whole.dtype.type(i * width)
                    self.write(part, bits.astype(f"u{width // 8}"), group)

            return unpack
        if source.startswith("{"):
            parts = _list(source)
            size = DTYPES[kind].itemsize // len(parts)

            def pack(group: Group) -> None:
                whole = np.zeros(self.machine.count, DTYPES[kind])
                for i, part in enumerate(parts):
                    bits = self.read(part, f"b{8 * size}").astype(whole.dtype)
                    whole |= bits << whole.dtype.type(8 * size * i)
                self.write(target, whole, group)

            return pack
        if source.startswith("%") or source.lstrip("-")[:1].isdigit():
            return None
        read = self.reader(source, kind)
        return lambda group: self.write(target, read(), group)

    def _cvta(self, instruction: Instruction) -> Run:
        to, space = "to" in instruction.opcode, instruction.opcode[-2]
        base = {"shared": SHARED, "local": LOCAL, "global": 0, "param": 0, "const": 0}[space]
        target, source = instruction.operands

        def convert(group: Group) -> None:
            address = self.read(source, "u64")
            self.write(target, address - np.uint64(base) if to else address + np.uint64(base), group)

        return convert

    def _operand_address(self, operand: str) -> tuple[str, Callable[[], Lanes]]:
        """The space of a bracketed operand, if it is a variable's, and its addresses."""
        base, _, offset = operand[1:-1].replace(" ", "").partition("+")
        shift = int(offset or 0)
        if base.startswith("%"):
            return "", lambda: self.register(base).astype(np.int64) + shift
        if base.lstrip("-")[:1].isdigit():
            return "", lambda: np.full(self.machine.count, int(base, 0) + shift, np.int64)
        space, address = self._address(base)
        return space, lambda: np.full(self.machine.count, address + shift, np.int64)

    def _resolved(
        self, space: str, addresses: Lanes, lanes: Lanes, size: int, *, writes: bool = False
    ) -> list[tuple[str, Lanes, Lanes]]:
        """Each space that some lanes access, the positions of those lanes in `lanes`, and the places there."""
        machine, found = self.machine, []
        space = "global" if space in ("const", "param") else space
        kinds = np.where(addresses >= LOCAL, 2, np.where(addresses >= SHARED, 1, 0))
        for kind, (name, base) in enumerate((("global", 0), ("shared", SHARED), ("local", LOCAL))):
            which = np.flatnonzero(kinds == kind) if not space else np.arange(lanes.size * (name == space))
            if which.size:
                owners = machine.owners(name)[lanes[which]]
                places = machine.spaces[name].places(addresses[which] - (0 if space else base), size, owners)
                if name == "global":
                    machine.touch(places, lanes[which], writes=writes)
                found.append((name, which, places))
        return found

    def _moves(self, instruction: Instruction) -> tuple[str, str, list[str], int]:
        """Space, type, registers and bytes of a register of a load or store."""
        opcode = instruction.opcode
        space = next((part for part in opcode if part in ("global", "shared", "local", "param", "const")), "")
        space = next((part.partition(":")[0] for part in opcode if part.startswith("shared:")), space)
        if left := set(opcode[1:-1]) - {space, *_ORDERS, *_CACHES, "v2", "v4", "v8"}:
            raise LookupError(f"{no_row(opcode)} with {sorted(left)[0]!r}")
        operand = instruction.operands[0 if opcode[0] == "ld" else 1]
        registers = _list(operand) if operand.startswith("{") else [operand]
        if len(registers) != next((int(part[1:]) for part in opcode if part in ("v2", "v4", "v8")), 1):
            raise LookupError(f"{instruction}: {len(registers)} registers")
        return space, opcode[-1], registers, DTYPES[opcode[-1]].itemsize

    def _ld(self, instruction: Instruction) -> Run:
        space, kind, registers, size = self._moves(instruction)
        operand = instruction.operands[1]
        if space == "param" and (name := operand[1:-1].partition("+")[0].strip()) in self.storage:
            start = int(operand[1:-1].partition("+")[2] or 0)
            return lambda group: self.write(registers[0], _field(self.storage[name], start, DTYPES[kind]), group)
        of_variable, addresses_of = self._operand_address(operand)

        def load(group: Group) -> None:
            which = group.index
            addresses = addresses_of()[which]
            values = np.zeros((len(registers), which.size), f"u{size}")
            resolved = self._resolved(space or of_variable, addresses, which, size * len(registers))
            for name, some, places in resolved:
                for i in range(len(registers)):
                    values[i, some] = self.machine.spaces[name].load(places + i * size, size)
            whole = np.zeros(self.machine.count, DTYPES[kind])
            for register, value in zip(registers, values, strict=True):
                whole[which] = value.view(DTYPES[kind])
                self.write(register, whole, group)

        return load

    def _st(self, instruction: Instruction) -> Run:
        space, kind, registers, size = self._moves(instruction)
        operand = instruction.operands[0]
        if space == "param" and (name := operand[1:-1].partition("+")[0].strip()) in self.storage:
            start = int(operand[1:-1].partition("+")[2] or 0)
            dtype = DTYPES[kind]

            def pass_on(group: Group) -> None:
                values = np.ascontiguousarray(_low(self.read_bits(registers[0], size), size)).view(np.uint8)
                target = self.storage[name][:, start : start + dtype.itemsize]
                np.copyto(target, values.reshape(self.machine.count, -1), where=group.lanes[:, None])

            return pass_on
        of_variable, addresses_of = self._operand_address(operand)

        def store(group: Group) -> None:
            which = group.index
            addresses = addresses_of()[which]
            values = [_low(self.read_bits(register, size)[which], size) for register in registers]
            for name, some, places in self._resolved(
                space or of_variable, addresses, which, size * len(registers), writes=True
            ):
                for i, value in enumerate(values):
                    self.machine.spaces[name].store(places + i * size, value[some])

        return store

    def read_bits(self, operand: str, size: int) -> Lanes:
        """A register's bits, or a number's as one of that size."""
        if operand.startswith("%") and operand not in self.machine.special:
            return self.register(operand)
        dtype = np.dtype(f"u{size}")
        if operand[:2].lower() in ("0f", "0d"):
            return np.full(self.machine.count, int(operand[2:], 16), dtype)
        return np.ascontiguousarray(self.read(operand, f"b{8 * size}"))

    def _call(self, instruction: Instruction) -> Run:
        results = _list(instruction.operands[0]) if instruction.operands[0].startswith("(") else []
        name, *rest = instruction.operands[len(results) > 0 :]
        params = _list(rest[0]) if rest else []
        function = self.machine.module.functions[name]
        for result in results:
            self.storage.setdefault(result, np.zeros((self.machine.count, function.results[0].nbytes), np.uint8))

        def call(group: Group) -> None:
            passed = zip([*function.params, *function.results], [*params, *results], strict=True)
            storage = {formal.name: self.storage[given] for formal, given in passed}
            self.machine.call(function, group.lanes, storage)

        return call

    def _atom(self, instruction: Instruction) -> Run:
        opcode = instruction.opcode
        space = next((part for part in opcode if part in ("global", "shared")), "")
        left = [part for part in opcode[1:-1] if part != space and part not in _ORDERS]
        returns = opcode[0] == "atom"
        if len(left) != 1 or left[0] not in _UPDATES:
            raise LookupError(no_row(opcode))
        update, kind, size = _UPDATES[left[0]], opcode[-1], DTYPES[opcode[-1]].itemsize
        target = instruction.operands[0] if returns else "_"
        operand, *sources = instruction.operands[returns:]
        of_variable, addresses_of = self._operand_address(operand)

        def apply(group: Group) -> None:
            which = group.index
            given = [self.read(source, kind)[which] for source in sources]
            whole = np.zeros(self.machine.count, DTYPES[kind])
            for name, some, places in self._resolved(
                space or of_variable, addresses_of()[which], which, size, writes=True
            ):
                memory = self.machine.spaces[name]
                for i, place in zip(some, places, strict=True):
                    old = memory.load(place[None], size).view(DTYPES[kind])
                    new = np.asarray(update(old, *(values[i : i + 1] for values in given)), DTYPES[kind])
                    memory.store(place[None], new.view(f"u{size}"))
                    whole[which[i]] = old[0]
            self.write(target, whole, group)

        return apply

    _red = _atom

    def _by_warp(self, operand: str, kind: str) -> Lanes:
        return np.ascontiguousarray(self.read(operand, kind)).reshape(-1, WARP)

    def _whole_warps(self, instruction: Instruction, lanes: Lanes, member: Lanes | None = None) -> Lanes:
        """The lanes by warp; raises KernelInternal where one that takes part is elsewhere."""
        present = lanes.reshape(-1, WARP)
        active = present.any(axis=1)
        needed = np.ones_like(present) if member is None else member
        if (active[:, None] & needed & ~present).any():
            raise KernelInternal(f"{instruction}: lanes of a warp that take part are elsewhere")
        return present

    def _members(self, operand: str, lanes: Lanes) -> Lanes:
        """The lanes that each warp's mask names, as its first active lane has it."""
        masks, present = self._by_warp(operand, "u32"), lanes.reshape(-1, WARP)
        first = masks[np.arange(masks.shape[0]), present.argmax(axis=1)]
        return (first[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)).astype(np.bool_)

    def _shfl(self, instruction: Instruction) -> Run:
        _, _, mode, kind = instruction.opcode
        target, source, by, clamp, mask = instruction.operands
        target, _, inside = target.partition("|")

        def exchange(group: Group) -> None:
            self._whole_warps(instruction, group.lanes, self._members(mask, group.lanes))
            lane, limit = (self._by_warp(operand, "u32").astype(np.int64) for operand in (by, clamp))
            values, within = shuffled(mode, self._by_warp(source, kind), lane, limit)
            self.write(target, values.reshape(-1), group)
            if inside:
                self.write(inside, within.reshape(-1), group)

        return exchange

    def _vote(self, instruction: Instruction) -> Run:
        mode = instruction.opcode[2]
        target, predicate, mask = instruction.operands

        def vote(group: Group) -> None:
            member = self._members(mask, group.lanes)
            self._whole_warps(instruction, group.lanes, member)
            self.write(target, votes(mode, self._by_warp(predicate, "pred"), member).reshape(-1), group)

        return vote

    def _bar(self, instruction: Instruction) -> Run:  # of a warp; the others are `_barrier`
        return lambda group: None

    def _ldmatrix(self, instruction: Instruction) -> Run:
        return self._matrices(instruction, instruction.operands[1], instruction.operands[0])

    def _stmatrix(self, instruction: Instruction) -> Run:
        return self._matrices(instruction, *instruction.operands)

    def _matrices(self, instruction: Instruction, address: str, fragment: str) -> Run:
        """Matrices of 8 x 8 halves; lanes 8 i to 8 i + 7 have the addresses of the rows of the i-th."""
        opcode, counts = instruction.opcode, {"x1": 1, "x2": 2, "x4": 4}
        known = opcode[1:4] == ("sync", "aligned", "m8n8") and opcode[4] in counts and opcode[-1] == "b16"
        if not known or opcode[5:-1] not in (("shared",), ("trans", "shared")):
            raise LookupError(no_row(opcode))
        registers, shared = _list(fragment), self.machine.spaces["shared"]
        _, addresses_of = self._operand_address(address)
        if len(registers) != counts[opcode[4]]:
            raise LookupError(f"{instruction}: {len(registers)} registers")
        axes = (0, 2, 1) if "trans" in opcode else (0, 1, 2)

        def move(group: Group) -> None:
            present = self._whole_warps(instruction, group.lanes)
            warps = np.flatnonzero(present.any(axis=1))
            blocks = self.machine.block.reshape(-1, WARP)[warps, :8]
            for i, register in enumerate(registers):
                rows = addresses_of().reshape(-1, WARP)[warps, 8 * i : 8 * i + 8]
                places = shared.places(rows.reshape(-1), 16, blocks.reshape(-1)).reshape(rows.shape)
                if opcode[0] == "stmatrix":
                    matrix = matrix_of(self._by_warp(register, "u32")[warps]).transpose(axes)
                    for column in range(8):
                        shared.store(places + 2 * column, np.ascontiguousarray(matrix[:, :, column]))
                    continue
                matrix = np.stack([shared.load(places + 2 * column, 2) for column in range(8)], axis=2)
                whole = np.zeros((present.shape[0], WARP), np.uint32)
                whole[warps] = fragment_of(matrix.transpose(axes))
                self.write(register, whole.reshape(-1), group)

        return move

    def _movmatrix(self, instruction: Instruction) -> Run:
        if instruction.opcode != ("movmatrix", "sync", "aligned", "m8n8", "trans", "b16"):
            raise LookupError(no_row(instruction.opcode))
        target, source = instruction.operands

        def move(group: Group) -> None:
            self._whole_warps(instruction, group.lanes)
            matrix = matrix_of(self._by_warp(source, "u32")).transpose(0, 2, 1)
            self.write(target, fragment_of(matrix).reshape(-1), group)

        return move

    def _mma(self, instruction: Instruction) -> Run:
        opcode = instruction.opcode
        if opcode[:3] != ("mma", "sync", "aligned"):
            raise LookupError(no_row(opcode))
        d, *sources = (_list(operand) for operand in instruction.operands)
        factors = "f64" if opcode[-2] == "f64" else "b32"
        kinds = (factors, factors, opcode[-1])

        def multiply(group: Group) -> None:
            self._whole_warps(instruction, group.lanes)
            words = [
                np.stack([self._by_warp(register, kind) for register in registers])
                for registers, kind in zip(sources, kinds, strict=True)
            ]
            product = mma(".".join(opcode[3:]), *words)
            for register, values in zip(d, product, strict=True):
                self.write(register, values.reshape(-1), group)

        return multiply

    def _cp(self, instruction: Instruction) -> Run:
        copies, name = self.machine.copies, ".".join(instruction.opcode)
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
        (_, to_of), (_, from_of) = (self._operand_address(operand) for operand in operands[:2])

        def issue(group: Group) -> None:
            which = group.index
            taken = self.read(operands[3] if len(operands) > 3 else str(size), "u32")[which].astype(np.int64)
            spaces = self.machine.spaces
            to = spaces["shared"].places(to_of()[which], size, self.machine.block[which])
            source = from_of()[which]
            read = taken > 0
            places = np.zeros(which.size, np.int64)
            if (source % size != 0).any():
                raise KernelInternal(f"{instruction}: a source is no multiple of {size}")
            self.machine.touch(source[read] - ORIGIN, which[read], writes=False)
            places[read] = spaces["global"].places(source[read], 1, np.zeros(int(read.sum()), np.int64))
            spaces["global"].places(source[read] + taken[read] - 1, 1, np.zeros(int(read.sum()), np.int64))
            copies.issue(which, to, places, size, taken)

        return issue

    def _griddepcontrol(self, instruction: Instruction) -> Run:
        if instruction.opcode[1] not in ("wait", "launch_dependents"):
            raise LookupError(no_row(instruction.opcode))

        def control(group: Group) -> None:
            if instruction.opcode[1] == "wait":
                self.machine.waited |= group.lanes

        return control

    def _membar(self, instruction: Instruction) -> Run:
        return lambda group: None

    _fence = _membar

    def _trap(self, instruction: Instruction) -> Run:
        def trap(group: Group) -> None:
            raise KernelInternal("trap")

        return trap


_ORDERS = ("volatile", "weak", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys")
_CACHES = ("nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L2:64B", "L2:128B", "L2:256B", "L1:no_allocate")
_ACTIONS = {
    *("mov", "cvta", "ld", "st", "call", "atom", "red", "shfl", "vote", "bar", "ldmatrix", "stmatrix", "movmatrix"),
    *("mma", "cp", "griddepcontrol", "membar", "fence", "trap"),
}
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


def _list(operand: str) -> list[str]:
    return [part.strip() for part in operand[1:-1].split(",") if part.strip()]


def _low(values: Lanes, size: int) -> Lanes:
    return values if values.dtype.itemsize == size else values.astype(f"u{size}")


def _field(storage: Lanes, start: int, dtype: np.dtype[Any]) -> Lanes:
    """A number of each lane's bytes."""
    return np.ascontiguousarray(storage[:, start : start + dtype.itemsize]).view(dtype)[:, 0]


def has_row(opcode: str) -> bool:
    """Whether the model knows an opcode like "cvt.rn.f16.f32"; of those that move data, it looks at the name alone."""
    parts = tuple(opcode.replace("::", ":").split("."))
    if parts[0] in _ACTIONS | {"bar", "barrier", "bra", "ret", "exit"} and parts[0] != "mov":
        return True
    try:
        row_of(parts)
    except LookupError:
        return False
    return True
