"""The model of an op of the row family: passes along the rows, then down the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from baracuda.runtime import RowPlan, Tile

from ...lower.op import Op, Scalar, Tensor, Value
from ...program import Expr
from ...program.tree import Query, Read
from ...spec.names import in_kernel
from ...text import Name


@dataclass(frozen=True, slots=True)
class Reduction:
    """A value reduced along the row."""

    name: Name
    kind: str  # "sum", "mean", "max" or "min"
    arg: Expr  # a Read, if one element is all that counts

    @property
    def local(self) -> Name:
        return in_kernel(self.name)

    @property
    def steps(self) -> bool:
        """Whether each element adds to it."""
        return not isinstance(self.arg, Read)


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
    def column(self) -> str:
        return self.cols

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
