"""The model: an op with every decision made, as data.

A spec is checked text; an op is decisions. It holds no CUDA, Python or English of the generator's: `emit` writes these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from baracuda.runtime import Extent, Gradient, KernelSku, Measurement
from baracuda.runtime.compile.line_map import Place

from ..program import Expr
from ..spec.names import in_kernel
from ..spec.types import arch_number
from ..text import Name, Text


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array argument as the kernel and the plan see it."""

    name: Name
    role: str  # "in", "out" or "inout" (an input that an output updates)
    over: str  # "element", "row", "col", "array" or "list" (of arrays): what it has a value for
    dtypes: tuple[str, ...]  # what may be stored, in terms of T and acc; the caller chooses, the first is preferred
    optional: str  # the descriptor's flag for its presence, or ""
    default: float | int  # its elements if it is absent
    kind: str  # "float", "int" or "bool"
    layout: str
    may_alias: tuple[str, ...]
    doc: Text
    rank: int = 0  # of a strided tensor
    shape: str = field(default="", compare=False)  # as documentation shows it

    def ranked(self, rank: int) -> Tensor:
        """The same tensor of so many axes."""
        return replace(self, rank=rank)

    @property
    def local(self) -> Name:
        """The name of its value in a kernel, and of its argument."""
        return in_kernel(self.name)

    @property
    def chosen(self) -> bool:
        """Whether the caller chooses the stored type."""
        return len(self.dtypes) > 1


@dataclass(frozen=True, slots=True)
class Scalar:
    """A descriptor field that the program reads; it travels as an 8-byte word."""

    name: Name
    kind: str  # "float", "int" or "bool"

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Value:
    """A line of the program: a named value."""

    name: Name
    kind: str  # "float", "int" or "bool"
    expr: Expr

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Resource limits of a kernel; None is the architecture's."""

    registers: int | None  # of a thread
    shared_bytes: int | None  # of a block
    stack_bytes: int  # of a thread, beside what it spills
    spill_bytes: tuple[tuple[str, str, int], ...]  # layout, device from which on, of a thread; others may not spill
    in_turns: bool = False  # blocks add to the same sums by bulk copies, in turns: always in one order

    def spills(self, layout: str, device: str) -> int:
        """What the latest architecture that is no later than the device says."""
        limits = {least: count for of, least, count in self.spill_bytes if of == layout}
        reached = [least for least in limits if arch_number(least) <= arch_number(device)]
        return limits[max(reached, key=arch_number)] if reached else 0


@dataclass(frozen=True, slots=True)
class DescriptorField:
    """A field of the descriptor; the caller must give it if it has neither a default nor a field to copy."""

    name: Name
    kind: Name  # "shape", "int", "float" or "bool"
    doc: Text
    default: Any
    same_as: str  # the field whose value is its default, or ""


@dataclass(frozen=True, slots=True)
class Check:
    """A requirement, and the name of the error that a violation raises."""

    that: str
    raises: Name


@dataclass(frozen=True, slots=True)
class Pinned:
    """A plan class for the SKUs of one architecture."""

    plan: Name
    arch: Name
    doc: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A lowered spec: the decisions common to all families."""

    name: Name
    plan: Name
    descriptor: Name
    category: Name
    direction: Name
    family: Name
    doc: Text
    formula: tuple[Text, ...]
    source: Text
    spec_path: Text
    template_path: Text
    allowances: tuple[tuple[str, Allowance], ...]  # by architecture
    contraction: bool
    flush_subnormals: bool

    elements: tuple[Name, ...]
    fields: tuple[DescriptorField, ...]
    checks: tuple[Check, ...]
    tensors: tuple[Tensor, ...]  # the arguments, inputs first
    check_order: tuple[str, ...]
    promises: tuple[tuple[Name, tuple[Name, ...]], ...]  # output -> rungs
    numerics: int  # the revision of its bits
    extents: tuple[Extent, ...]  # fields of the descriptor that the inputs' shapes show
    gradient: Gradient | None
    tuned: tuple[tuple[str, tuple[Measurement, ...]], ...] = ()  # by architecture
    pinned: tuple[Pinned, ...] = ()  # plan classes for the SKUs of one architecture
    kinds_offered: tuple[Name, ...] = ()  # what the field `kind` may be

    @property
    def held_everywhere(self) -> tuple[Name, ...]:
        """The rungs that every output stands on."""
        first, *others = (rungs for _, rungs in self.promises)
        return tuple(r for r in first if all(r in other for other in others))

    @property
    def chosen(self) -> tuple[Tensor, ...]:
        """Tensors whose stored type the caller chooses."""
        return tuple(t for t in self.tensors if t.chosen)

    @property
    def float8(self) -> bool:
        """Is a tensor stored in 8-bit floats?"""
        return any(dtype.startswith("f8") for t in self.tensors for dtype in t.dtypes)

    @property
    def flags(self) -> tuple[Tensor, ...]:
        """Tensors that may be absent."""
        return tuple(t for t in self.tensors if t.optional)

    @property
    def bounds(self) -> tuple[str, ...]:
        """Formulas of what must be below 2^31 for kernels to compute with 32-bit numbers; () if they never do."""
        return ()

    @property
    def column(self) -> str:
        """The dim whose index kernels compare with a place by `e.at(place)`; "" for none."""
        return ""

    @property
    def divisors(self) -> frozenset[str]:
        """The fields by which kernels divide with numbers that the plan has computed."""
        return frozenset()

    @property
    def plans(self) -> tuple[Name, ...]:
        """The plan classes of its module."""
        return (self.plan, *(p.plan for p in self.pinned))

    @property
    def layout_names(self) -> tuple[str, ...]:
        """The layouts in memory that its kernels are compiled for."""
        raise AssertionError("families define this")

    @property
    def own_headers(self) -> Mapping[str, Sequence[tuple[Place, str]]]:
        """The headers that a project has of its own, by path: their lines, with the place of each."""
        return {}

    def serves(self, sku: KernelSku) -> str:
        """The formula of what a kernel may serve, or ""."""
        return ""

    def allowance(self, arch: str) -> Allowance:
        """What a kernel of the SKUs of `arch` may use."""
        least = self.allowances[0][1]
        return dict(self.allowances).get(arch, least)  # a tile may need a later one than any that the spec names
