"""The model of an op of the row family: passes along the rows, then down the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from baracuda.runtime import RowPlan, Tile

from ...lower.op import Op, Scalar, Tensor, Value
from ...program import Expr
from ...program.tree import Call, Query, Read, walk
from ...program.tree import Name as FieldName
from ...spec.names import in_kernel
from ...text import Name


@dataclass(frozen=True, slots=True)
class Reduction:
    """A value reduced along the row."""

    name: Name
    kind: str  # "sum", "mean", "max" or "min"
    arg: Expr  # a Read, if one element is all that counts; of a sum below the largest x of a row, that x
    largest: str = ""  # the name of that reduction: this one sums e^(x - largest)

    @property
    def local(self) -> Name:
        return in_kernel(self.name)

    @property
    def steps(self) -> bool:
        """Whether each element adds to it."""
        return not isinstance(self.arg, Read)

    @property
    def top(self) -> Name | None:
        """The local name of the largest."""
        return in_kernel(self.largest) if self.largest else None


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
class Look:
    """What is read and computed of each element, and what that is used for."""

    reads: tuple[Tensor, ...]  # element and column tensors
    values: tuple[Value, ...]
    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]
    column_sums: tuple[ColumnSum, ...]
    column_index: bool  # do these read index(cols)?
    places: tuple[Expr, ...]  # that the column's index is compared with

    @property
    def work(self) -> int:
        """Operations an element."""
        exprs = [value.expr for value in self.values] + [store.expr for store in self.stores]
        exprs += [reduction.arg for reduction in self.reductions] + [total.arg for total in self.column_sums]
        of_exponentials = 2 * sum(bool(r.top) for r in self.reductions)
        return sum(isinstance(part, Call) for expr in exprs for part in walk(expr)) + of_exponentials

    @property
    def largest(self) -> bool:
        """Whether it only finds the largest elements of arrays of the op's element type."""
        arrays = {str(t.name) for t in self.reads if t.over == "element" and not t.optional and t.dtypes == ("T",)}
        found = all(isinstance(r.arg, FieldName) and r.kind == "max" and r.arg.id in arrays for r in self.reductions)
        return found and not (self.values or self.stores or self.column_sums)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass along the row: what is known before it, and what it does with the elements of each tile.

    For sums below the largest element so far, it looks at them a second time.
    """

    row_values: tuple[Value, ...]  # known before the walk, one per row
    row_stores: tuple[Store, ...]
    looks: tuple[Look, ...]

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """The tensors that the walk looks at."""
        return tuple(dict.fromkeys(t for look in self.looks for t in look.reads))

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return tuple(r for look in self.looks for r in look.reductions)

    @property
    def stores(self) -> tuple[Store, ...]:
        return tuple(s for look in self.looks for s in look.stores)

    @property
    def column_sums(self) -> tuple[ColumnSum, ...]:
        return tuple(c for look in self.looks for c in look.column_sums)

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
    def bits(self) -> dict[Name, int]:
        """What walks ask of a pass, a bit for each of which it holds."""
        asked: dict[str, Callable[[Pass], object]] = {
            "AGAIN": lambda along: len(along.looks) > 1,
            "LARGEST": lambda along: any(look.largest for look in along.looks),
            "PLACED": lambda along: any(look.places for look in along.looks[:1]),
        }
        bits = {Name(k): sum(1 << n for n, p in enumerate(self.passes) if holds(p)) for k, holds in asked.items()}
        return {name: of_passes for name, of_passes in bits.items() if of_passes}

    @property
    def last(self) -> Pass:
        return self.passes[-1]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        return tuple(r for p in self.passes for r in p.reductions)

    @property
    def column_sums(self) -> tuple[ColumnSum, ...]:
        return self.last.column_sums
