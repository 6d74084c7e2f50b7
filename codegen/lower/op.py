"""What templates see: an op with every decision made.

A spec is checked text; an op is decisions. Templates only loop and print.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from baracuda.runtime import Extent, Gradient, Measurement, RowPlan, Tile

from ..spec.names import in_kernel
from ..spec.spec import arch_number
from ..text import Code, Name, Text, wrapped

_STRIDES = {"any": "any strides", "contiguous": "contiguous strides", "inner": "any strides, the last 1"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array argument as the kernel and the plan see it."""

    name: Name
    role: str  # "in", "out" or "inout" (an input that an output updates)
    over: str  # "element", "row" or "col": what it has a value for
    struct: Code  # PerElement, PerRow or PerCol
    ctype: Code  # C++ type of what is stored, in terms of T
    dtypes: tuple[str, ...]  # what the caller may bring, in terms of T and acc; the first is preferred
    optional: str  # the descriptor's flag that says it is there, or ""
    absent: Code  # CUDA text of what is read in its absence
    kind: str  # "float" or "int"
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
        """What a kernel calls its value, or its place in a struct."""
        return in_kernel(self.name)

    @property
    def macro(self) -> Name | None:
        """What settles `ctype` where the caller has a choice."""
        return Name(f"BARACUDA_TYPE_{self.name.upper()}") if len(self.dtypes) > 1 else None

    def told(self, absence: str) -> tuple[Text, ...]:
        """What documentation says of it, wrapped; `absence` is what it says of one that is optional."""
        held = f"{self.shape} of {' or '.join(self.dtypes)}, {_STRIDES[self.layout]}"
        alias = f"; may be the memory of {' or '.join(self.may_alias)}" if self.may_alias else ""
        text = f"{self.name} ({self.role}): {self.doc}; {held}{alias}{f'; {absence}' if self.optional else ''}"
        return wrapped(text, 112, "    ")

    @property
    def has(self) -> Code:
        """The constant that says the tensor is there."""
        return Code(f"HAS_{self.name.upper()}" if self.optional else "")

    @property
    def if_there(self) -> Code:
        return Code(f"if ({self.has}) " if self.has else "")

    @property
    def held(self) -> Code:
        """The constant that says a thread of a row holds its elements from the start."""
        return Code("ROW_INVARIANT" if self.over == "col" else "IN_REGISTERS")

    @property
    def and_there(self) -> Code:
        return Code(f" && {self.has}" if self.has else "")

    @property
    def unless_absent(self) -> Code:
        return Code(f"!{self.has} ? {self.absent} : " if self.has else "")

    @property
    def base(self) -> Code:
        """Where a walk along a row finds the tensor."""
        return Code(f"{self.name}_row" if self.over == "element" else f"args.{self.local}.data")

    @property
    def inside(self) -> Code:
        """Whether whole packs around a row may be read: not where other blocks update theirs meanwhile."""
        return Code("false" if self.role == "inout" else f"MISALIGNED && args.{self.local}.may_overread(row)")

    @property
    def again(self) -> Code:
        """The layout to read it in while it is stored to: of what is updated, a thread reads its own columns only."""
        return Code("MISALIGNED ? Layout::STRIDED : LAYOUT" if self.role == "inout" else "LAYOUT")

    @property
    def value_type(self) -> Code:
        return Code("i64" if self.kind == "int" else "acc_t")

    @property
    def const(self) -> Code:
        return Code("const " if self.role == "in" else "")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A descriptor field that the program reads; it travels as an 8-byte word."""

    name: Name
    ctype: Code
    word: Code  # "double" or "long long"

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Value:
    """``const <ctype> local = expr;``"""

    local: Name
    ctype: Code
    expr: Code


@dataclass(frozen=True, slots=True)
class Reduction:
    """A value reduced along the row: CUDA texts of a thread's initial value, its step and the result."""

    name: Name
    start: Code
    step: Code
    fold: Code
    finish: Code

    @property
    def local(self) -> Name:
        return in_kernel(self.name)


@dataclass(frozen=True, slots=True)
class Store:
    """An output's tensor and the CUDA text of its value."""

    tensor: Tensor
    expr: Code


@dataclass(frozen=True, slots=True)
class ColumnSum:
    """A value summed down each column; `flag` is the descriptor's that requests it, `has` the kernel's."""

    name: Name
    step: Code  # of the sum in a thread's registers
    flag: str
    has: Code

    @property
    def local(self) -> Name:
        return in_kernel(self.name)

    @property
    def if_there(self) -> Code:
        return Code(f"if ({self.has}) " if self.has else "")


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
        given = {least: count for of, least, count in self.spill_bytes if of == layout}
        known = [least for least in given if arch_number(least) <= arch_number(device)]
        return given[max(known, key=arch_number)] if known else 0


@dataclass(frozen=True, slots=True)
class DescriptorField:
    name: Name
    annotation: Code
    kind: Name
    lines: tuple[Text, ...]  # its name and what it means, wrapped
    default: Code  # or "" when the caller must give it


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
    kind: Name
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
    shapes_told: str  # what the names in its tensors' shapes are, or ""
    fields: tuple[DescriptorField, ...]
    run_lines: tuple[Text, ...]  # what the documentation of `run` says of its arguments, wrapped
    checks: tuple[Check, ...]
    tensors: tuple[Tensor, ...]  # the arguments, inputs first
    check_order: tuple[str, ...]
    promises: tuple[tuple[Name, tuple[Name, ...]], ...]  # output -> rungs
    extents: tuple[Extent, ...]  # fields of the descriptor that the inputs' shapes show
    gradient: Gradient | None
    tuned: tuple[tuple[str, tuple[Measurement, ...]], ...] = ()  # by architecture
    pinned: tuple[Pinned, ...] = ()  # plan classes for the SKUs of one architecture

    @property
    def held_everywhere(self) -> tuple[Name, ...]:
        """The rungs that every output stands on."""
        first, *others = (rungs for _, rungs in self.promises)
        return tuple(r for r in first if all(r in other for other in others))

    @property
    def chosen(self) -> tuple[Tensor, ...]:
        """Tensors whose stored type the caller chooses."""
        return tuple(t for t in self.tensors if t.macro)

    @property
    def arrays(self) -> tuple[Code, ...]:
        """The arguments of `run` that are arrays."""
        return tuple(Code(t.name) for t in self.tensors)

    @property
    def float8(self) -> bool:
        """Is a tensor stored in 8-bit floats?"""
        return any(dtype.startswith("f8") for t in self.tensors for dtype in t.dtypes)

    @property
    def flags(self) -> tuple[Tensor, ...]:
        """Tensors that may be absent."""
        return tuple(t for t in self.tensors if t.optional)

    @property
    def element_lines(self) -> tuple[Text, ...]:
        """What the descriptor's documentation says of the element, wrapped."""
        return wrapped(f"element: type of the elements, one of {', '.join(self.elements)}", 112, "    ")

    @property
    def exported(self) -> tuple[Name, ...]:
        """What `from module import *` gives."""
        return tuple(sorted((self.descriptor, *self.plans)))

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
    row_index: bool  # does the program read index(rows)?

    @property
    def layout_names(self) -> tuple[str, ...]:
        return RowPlan.LAYOUTS

    @property
    def column_flags(self) -> tuple[str, ...]:
        """For each column sum, the flag that says it is wanted."""
        return tuple(c.flag for c in self.column_sums)

    @property
    def element_tensors(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.over == "element")

    @property
    def element_inputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.element_tensors if t.role != "out")

    @property
    def row_inputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.over == "row" and t.role != "out")

    @property
    def column_inputs(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.over == "col" and t.role != "out")

    @property
    def last(self) -> Pass:
        return self.passes[-1]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return tuple(r for p in self.passes for r in p.reductions)

    @property
    def column_sums(self) -> tuple[ColumnSum, ...]:
        return self.last.column_sums
