"""PTX of one kernel: its arithmetic, its atomics, and the widths of accesses to each argument.

PTX distinguishes what machine code no longer does: products that the assembler may fuse from those it may not, the
program's own flushing from that inside a correctly rounded division, and which tensor an address belongs to.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

UNKNOWN = -1  # among the offsets of pointers: an address whose origin is not found
_OWN = -2  # the module's own tables
_ELSEWHERE = {"shared", "local", "param", "const"}

Widths = dict[int, int]  # bytes a thread moves at once -> number of instructions

_INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s+([^;]*);", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:\.\w+ )*\.(?:entry|func)\b", re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_REGISTER = re.compile(r"%[a-z]+\d+")
_ADDRESS = re.compile(r"\[([%\w$]+)(?:\+(-?\d+))?\]")
_COPY = re.compile(r",\s*([%A-Za-z_$][\w$]*)$")
_STEP = re.compile(r",\s*(%[a-z]+\d+),\s*(-?\d+)$")
_TYPE = re.compile(r"\.[busf](8|16|32|64|128)\b")
_FLOAT = re.compile(r"\.(?:f16|bf16|f32|f64)(?:x2)?\b")
_ATOMIC = re.compile(r"(?:red|atom|multimem\.(?:red|ld_reduce)|cp\.reduce)\.")
_SWAP = re.compile(r"atom\.(?:\w+[.:]+)*cas\.")
_FUSABLE = re.compile(r"(?:add|sub|mul)\.(?:ftz\.)?(?:sat\.)?(?:f16|bf16|f32|f64)(?:x2)?$")
_ROUNDED = re.compile(r"(?:add|sub|mul)\.r[nzmp]\.")
_FUSED = re.compile(r"(?:fma|mad)\.(?:r[nzmp]\.)?(?:ftz\.)?(?:sat\.)?(?:relu\.)?(?:f16|bf16|f32|f64)(?:x2)?$")
_LOOSE = re.compile(r"(?:div\.(?:approx|full)|sqrt\.approx)\.")
_TRY = re.compile(r"\bmbarrier\.(?:try|test)_wait\.[\w.:]+\s+(%?[\w$]+)\s*,[^;]*;")
_F32 = re.compile(r"(?:add|sub|mul|fma|div|sqrt|setp|min|max)\.(?:[a-z]+\.)*f32$")
# Names that differ between equal programs: a digest of the file's name and text.
_UNIQUE = re.compile(r"_INTERNAL_[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}")
_VARIABLE = re.compile(r"^\.(?:\w+ )*(?:global|const) [^;={]*?([\w$]+)(?:\[\d*\])?(?: = [^;]*)?;", re.MULTILINE)
_MANGLED = re.compile(r"\b_Z[\w$]+")
_NO_CODE = re.compile(r"//.*$|^\s*\.(?:file|loc|version)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Ptx:
    """Counts of instructions, and access widths by pointer (its offset in the kernel's parameter)."""

    fused: int = 0  # multiply-adds, from wherever
    fusable: Mapping[str, int] = field(default_factory=dict)  # that the assembler may still contract
    rounded: int = 0  # additions and products that it may not
    flushing: Mapping[str, int] = field(default_factory=dict)  # .ftz, approximations inside functions aside
    flushing_functions: int = 0
    keeping: int = 0  # arithmetic on f32 without .ftz
    loose: Mapping[str, int] = field(default_factory=dict)  # divisions and roots that are not correctly rounded
    atomics: Mapping[str, int] = field(default_factory=dict)  # on floats, or compare-and-swap
    unread_tries: int = 0  # waits that may give up, whose answer nothing reads
    loads: Mapping[int, Widths] = field(default_factory=dict)
    stores: Mapping[int, Widths] = field(default_factory=dict)
    digest: str = ""

    @property
    def doubtful(self) -> bool:
        """Whether the counts alone cannot exclude contraction or flushing; see `beyond`."""
        return bool(self.fused and not self.rounded) or bool(self.flushing_functions and not self.keeping)

    def beyond(self, strict: Ptx) -> dict[str, int]:
        """What this has more of than `strict`, the same source compiled without contraction and flushing."""
        excess = {"fma": self.fused - strict.fused, ".ftz": self.flushing_functions - strict.flushing_functions}
        return {name: count for name, count in excess.items() if count > 0}


def read_ptx(text: str) -> Ptx:
    """Parse `text`, a module with one kernel."""
    count = Counter(m[1] for m in _INSTRUCTION.finditer(text))

    def some(pattern: re.Pattern[str]) -> dict[str, int]:
        return {op: n for op, n in sorted(count.items()) if pattern.match(op)}

    flushing = {op: n for op, n in sorted(count.items()) if ".ftz" in op}
    functions = {op: n for op, n in flushing.items() if ".approx." in op}
    atomics = {op: n for op, n in some(_ATOMIC).items() if _FLOAT.search(op) or _SWAP.match(op)}
    loads, stores = _traffic(text)
    return Ptx(
        fused=sum(some(_FUSED).values()),
        fusable=some(_FUSABLE),
        rounded=sum(some(_ROUNDED).values()),
        flushing={op: n for op, n in flushing.items() if op not in functions},
        flushing_functions=sum(n for op, n in functions.items() if not op.endswith("f64")),
        keeping=sum(n for op, n in some(_F32).items() if ".ftz" not in op),
        loose=some(_LOOSE),
        atomics=atomics,
        unread_tries=sum(_is_unread(text, m) for m in _TRY.finditer(text)),
        loads=loads,
        stores=stores,
        digest=_digest(text),
    )


def _is_unread(text: str, tried: re.Match[str]) -> bool:
    """Whether nothing reads the predicate that an instruction writes, before the end of its braces or function."""
    end = text.find("}", tried.end())
    return not re.search(rf"(?<![\w$%]){re.escape(tried[1])}\b", text[tried.end() : end if end >= 0 else None])


def unread_variables(text: str) -> frozenset[str]:
    """The module's variables that no instruction names: NVRTC emits every static constexpr."""
    count = Counter(re.findall(r"[\w$]+", text))
    return frozenset(m[1] for m in _VARIABLE.finditer(text) if count[m[1]] == 1)


def _digest(text: str) -> str:
    """Of the instructions and what they read: comments, version and the names of types and of the file do not count."""
    unread = unread_variables(text)
    plain = _VARIABLE.sub(lambda match: "" if match[1] in unread else match[0], text)
    plain = _UNIQUE.sub("", _NO_CODE.sub("", plain))
    numbers: dict[str, int] = {}  # of mangled names, in the order in which they come
    plain = _MANGLED.sub(lambda match: f"_Z{numbers.setdefault(match[0], len(numbers))}", plain)
    lines = "\n".join(line.strip() for line in plain.splitlines() if line.strip())
    return hashlib.sha256(lines.encode(), usedforsecurity=False).hexdigest()


def _traffic(text: str) -> tuple[dict[int, Widths], dict[int, Widths]]:
    """Widths of loads and stores by the pointers that their addresses derive from.

    Addresses of unknown origin count under UNKNOWN; the module's own tables are not counted.
    """
    loads: dict[int, Widths] = {}
    stores: dict[int, Widths] = {}
    starts = [m.start() for m in _FUNCTION.finditer(text)]
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        body = text[start:end]
        entry = _ENTRY.search(body)
        moves = [(m[1], m[2], _registers(m[2])) for m in _INSTRUCTION.finditer(body)]
        origin = _origins(moves, f"{entry[1]}_param_0" if entry else "")
        for op, args, _ in moves:
            kind, *parts = op.split(".")
            if op.startswith(("cp.async.ca.", "cp.async.cg.")):
                _count(loads, origin, *_copied(args))
                continue
            if kind not in ("ld", "st") or _ELSEWHERE & {part.partition("::")[0] for part in parts}:
                continue
            _count(loads if kind == "ld" else stores, origin, _address(args)[0], _width(op))
    return loads, stores


def _count(moves: dict[int, Widths], origin: Mapping[str, set[int]], address: str, width: int) -> None:
    for offset in origin.get(address) or {UNKNOWN}:
        if offset != _OWN:
            widths = moves.setdefault(offset, {})
            widths[width] = widths.get(width, 0) + 1


def _copied(args: str) -> tuple[str, int]:
    """Source and size of a copy to shared memory: its last brackets and the number after them."""
    (address, _), size = _ADDRESS.findall(args)[-1], args.rpartition("]")[2]
    return address, int(size.split(",")[1])


def _address(args: str) -> tuple[str, int]:
    """Name and offset in brackets."""
    match = _ADDRESS.search(args)
    assert match is not None, args
    return match[1], int(match[2] or 0)


def _registers(args: str) -> tuple[list[str], list[str]]:
    """The registers that a scalar instruction writes (the first) and reads."""
    named = [r for r in _REGISTER.findall(args) if not r.startswith("%p")]
    return named[:1], named[1:]


def _origins(moves: Iterable[tuple[str, str, tuple[list[str], list[str]]]], parameter: str) -> dict[str, set[int]]:
    """The words of the kernel's `parameter`, by offset, that each register derives from.

    Words read at offsets unknown before run time are strides and extents, never pointers.
    """
    origin: dict[str, set[int]] = defaultdict(set)
    bases = {parameter: 0}  # names and registers for its address, and how far behind it
    users: dict[str, list[str]] = defaultdict(list)  # register -> those computed from it
    for op, args, (written, read) in moves:
        kind = op.partition(".")[0]
        copied = _COPY.search(args) if kind in ("mov", "cvta") else None
        if kind == "ld" and ".param." in op:
            base, offset = _address(args)
            if base in bases:
                origin[written[0]].add(bases[base] + offset)
        elif copied and copied[1] in bases:
            bases[written[0]] = bases[copied[1]]
        elif kind == "add" and (stepped := _STEP.search(args)) and stepped[1] in bases:
            bases[written[0]] = bases[stepped[1]] + int(stepped[2])
        elif copied and not copied[1].startswith("%") and written:
            origin[written[0]].add(_OWN)
        elif kind not in ("ld", "st", "cp", "atom", "red", "setp", "bra", "call") and written and read:
            for source in read:
                users[source].append(written[0])
    pending = list(origin)
    while pending:
        source = pending.pop()
        for target in users[source]:
            if not origin[source] <= origin[target]:
                origin[target] |= origin[source]
                pending.append(target)
    return origin


def _width(op: str) -> int:
    """Bytes of one load or store."""
    match = _TYPE.search(op)
    assert match is not None, op
    vector = re.search(r"\.v([248])\b", op)
    return int(match[1]) // 8 * (int(vector[1]) if vector else 1)
