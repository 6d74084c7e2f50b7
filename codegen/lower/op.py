"""The model: an op with every decision made, as data.

A spec is checked text; an op is decisions. It holds no CUDA, Python or English of the generator's: `emit` writes these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from baracuda.runtime import Extent, Gradient, Measurement, RowPlan, Tile

from ..program import Expr
from ..program.tree import Query
from ..spec.names import in_kernel
from ..spec.spec import arch_number
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
class Reduction:
    """A value reduced along the row."""

    name: Name
    kind: str  # "sum", "mean", "max" or "min"
    arg: Expr

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Store:
    """An output's tensor and its value."""

    tensor: Tensor
    expr: Expr


@dataclass(frozen=True, slots=True)
class ColumnSum:
    """A value summed down each column, if the descriptor's flag `optional` requests it."""

    name: Name
    arg: Expr
    optional: str

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass along the row: values to compute, then what they are used for."""

    row_values: tuple[Value, ...]  # known before the walk, one per row
    row_stores: tuple[Store, ...]
    reads: tuple[Tensor, ...]  # element and column tensors the walk looks at
    values: tuple[Value, ...]
    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]
    column_sums: tuple[ColumnSum, ...]
    column_index: bool  # do these read index(cols)?

    @property
    def walks(self) -> bool:
        return bool(self.reductions or self.stores or self.column_sums)

    @property
    def updates(self) -> bool:
        """Whether it stores what is read, too."""
        return any(s.tensor.role == "inout" for s in self.stores)


@dataclass(frozen=True, slots=True)
class Columns:
    """What is computed from the column sums, once per column."""

    reads: tuple[Tensor, ...]
    values: tuple[Value, ...]
    stores: tuple[Store, ...]


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
    def plans(self) -> tuple[Name, ...]:
        """The plan classes of its module."""
        return (self.plan, *(p.plan for p in self.pinned))

    @property
    def layout_names(self) -> tuple[str, ...]:
        """The layouts in memory that its kernels are compiled for."""
        raise AssertionError("families define this")

    def allowance(self, arch: str) -> Allowance:
        """What a kernel of the SKUs of `arch` may use."""
        least = self.allowances[0][1]
        return dict(self.allowances).get(arch, least)  # a tile may need a later one than any that the spec names


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOp(Op):
    """An op of the row family: passes along the rows, then down the columns."""

    arch: Name
    shape: Name  # the field whose axes the dims share out
    rows: Name
    cols: Name
    col_axes: str  # the formula of the axes that make up cols
    scalars: tuple[Scalar, ...]
    passes: tuple[Pass, ...]
    columns: Columns
    tiles: tuple[tuple[Name, tuple[Tile, ...]], ...]  # of each element type
    queries: tuple[Query, ...]  # sizes of dims, and the index of the row, as far as the program reads them
    kinds: Mapping[str, str]  # of the program's names: "float", "int" or "bool"

    @property
    def layout_names(self) -> tuple[str, ...]:
        return RowPlan.LAYOUTS

    @property
    def column_flags(self) -> tuple[str, ...]:
        """For each column sum, the flag that says it is wanted."""
        return tuple(c.optional for c in self.column_sums)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """Tensors of elements, and what is read of rows and columns."""
        return tuple(t for t in self.tensors if t.over == "element" or t.role != "out")

    @property
    def members(self) -> tuple[Query | Scalar | Tensor | Reduction | Value, ...]:
        """What holds for all rows, and what is known of a row at some time."""
        numbers = range(len(self.passes))
        of_rows = (part for n in numbers for part in (*self.reduced_before(n), *self.known_before(n)))
        return (*(q for q in self.queries if q.what == "size"), *self.scalars, *of_rows)

    def reduced_before(self, number: int) -> tuple[Reduction, ...]:
        """What the pass before pass `number` reduces."""
        return self.passes[number - 1].reductions if number else ()

    def known_before(self, number: int) -> tuple[Query | Tensor | Value, ...]:
        """What else becomes known of a row before pass `number` along it."""
        if number:
            return self.passes[number].row_values
        read = (t for t in self.tensors if t.over == "row" and t.role != "out")
        return (*(q for q in self.queries if q.what == "index"), *read, *self.passes[0].row_values)

    @property
    def last(self) -> Pass:
        return self.passes[-1]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return tuple(r for p in self.passes for r in p.reductions)

    @property
    def column_sums(self) -> tuple[ColumnSum, ...]:
        return self.last.column_sums
