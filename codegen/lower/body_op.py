"""What the templates of the body family see."""

from __future__ import annotations

from dataclasses import dataclass

from baracuda.runtime import Schedule

from ..text import Code, Name, Text, python
from .op import Op, Scalar


@dataclass(frozen=True, slots=True)
class Setting:
    """A constant of the kernel that the descriptor decides; `python` computes it."""

    name: Name
    ctype: Code  # "bool" or "int"
    python: Code


@dataclass(frozen=True, slots=True)
class Scratch:
    """An array of the workspace."""

    name: Name
    ctype: Code
    dtype: str
    python: Code  # how many elements


@dataclass(frozen=True, slots=True)
class Kernel:
    """A launch, as Python texts."""

    name: Name
    grid: tuple[Code, ...]
    threads: Code
    shared: Code
    overlaps: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of schedules."""

    arch: Name
    elements: tuple[Name, ...]
    schedule: Schedule
    layout: str  # the only one it works on, or ""
    first: bool  # whether it comes before those that are made for the device's own architecture
    serves: str  # what it serves, as the spec says it, or ""
    python: Code

    @property
    def numbers(self) -> tuple[tuple[Name, int], ...]:
        return tuple((Name(n), value) for n, value in self.schedule.numbers)

    @property
    def constants(self) -> tuple[tuple[Name, int], ...]:
        return (Name("THREADS"), self.schedule.threads), *((n.upper(), value) for n, value in self.numbers)

    @property
    def struct(self) -> Name:
        """The name of the struct that holds the constants."""
        return Name(f"Schedule_{self.arch}_{self.schedule.tag}")

    @property
    def key(self) -> Code:
        """The schedule as text, a literal of Python."""
        return python(str(self.schedule))


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry point: a kernel of a SKU."""

    symbol: Name
    kernel: Name
    ctype: Code
    row: Row
    bounds: Code  # threads of a block, and blocks that a multiprocessor is to hold


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes that an argument may have, as Python texts."""

    name: Name
    python: tuple[Code, ...]


@dataclass(frozen=True, slots=True)
class Maps:
    """The tensor maps of an architecture: tensors and the Python text of the box that is copied."""

    arch: Name
    boxes: tuple[tuple[Name, Code], ...]


@dataclass(frozen=True, slots=True)
class Pinned:
    """A plan class for the SKUs of one architecture."""

    plan: Name
    arch: Name
    doc: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOp(Op):
    """An op with hand-written kernels."""

    headers: tuple[tuple[Name | None, Code], ...]  # (macro of the architecture, header); the last has no macro
    bodies: tuple[str, ...]  # architectures with a header of their own
    scalars: tuple[Scalar, ...]
    settings: tuple[Setting, ...]
    terms: tuple[tuple[Name, Code], ...]  # names that expressions share, and their Python texts
    layouts: tuple[tuple[Name, tuple[tuple[Name, int], ...]], ...]
    workspace: tuple[Scratch, ...]
    kernels: tuple[Kernel, ...]
    rows: tuple[Row, ...]
    entries: tuple[Entry, ...]
    shapes: tuple[Shapes, ...]
    maps: tuple[Maps, ...]
    pinned: tuple[Pinned, ...]
    needs_math: bool = False

    @property
    def plans(self) -> tuple[Name, ...]:
        """The plan classes of its module."""
        return (self.plan, *(p.plan for p in self.pinned))

    @property
    def scalar_codes(self) -> tuple[tuple[str, str], ...]:
        """Each scalar with the struct code of its word."""
        return tuple((s.name, "d" if s.word == "double" else "q") for s in self.scalars)

    @property
    def layout_names(self) -> tuple[Name, ...]:
        return tuple(name for name, _ in self.layouts)

    @property
    def scratch_types(self) -> tuple[tuple[str, str], ...]:
        return tuple((w.name, w.dtype) for w in self.workspace)

    @property
    def first(self) -> tuple[str, ...]:
        """Schedules that come before those that are made for the device's own architecture."""
        return tuple(dict.fromkeys(str(r.schedule) for r in self.rows if r.first))

    @property
    def structs(self) -> tuple[Row, ...]:
        """A row for each distinct schedule of an architecture."""
        return tuple({r.struct: r for r in self.rows}.values())
