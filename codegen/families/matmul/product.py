"""The product of a program: which arrays are multiplied, and what each dim is to them."""

from __future__ import annotations

from dataclasses import dataclass

from ...program import Name, ProgramError, Reduce, to_source
from ...program.tree import Call, Expr, Line
from ..map.program import Parts, split
from ..map.spec import MapSpec

ROLES = ("batch", "rows", "columns", "depth")


@dataclass(frozen=True, slots=True)
class Product:
    """`sum(left * right, depth)`: rows are of the left factor alone, columns of the right one, a batch of both."""

    line: Line
    left: str
    right: str
    dims: dict[str, str]  # role -> dim; there may be no batch


def factors_of(expr: Expr) -> tuple[str, str, str] | None:
    """Of `sum(a * b, d)` the names of both factors and of the dim."""
    match expr:
        case Reduce(kind="sum", arg=Call(op="mul", args=(Name(id=a), Name(id=b))), dims=(dim,)):
            return a, b, dim
    return None


def product_of(spec: MapSpec) -> Product:
    """The product of the program of one kind; raises ProgramError where it has none, or something else beside it."""
    return _product(spec, split(spec))


def _product(spec: MapSpec, parts: Parts) -> Product:
    if not parts.sum_lines:
        raise ProgramError("there is no matrix product; write sum(a * b, dim)", parts.lines[0].number)
    line, *others = parts.sum_lines
    found = factors_of(line.expr)
    if found is None or not {*found[:2]} <= spec.inputs.keys():
        text = f"{to_source(line.expr)} is no matrix product; write sum(a * b, dim) of two inputs"
        raise ProgramError(text, line.number)
    if others:
        text = f"{to_source(others[0].expr)} is reduced beside the matrix product; leave it to an op of its own"
        raise ProgramError(text, others[0].number)
    a, b, depth = found
    both, rows = (spec.inputs[a].over & spec.inputs[b].over) - {depth}, spec.inputs[a].over - spec.inputs[b].over
    columns = spec.inputs[b].over - spec.inputs[a].over
    if len(both) > 1 or len(rows) != 1 or len(columns) != 1:
        of_a, of_b, of_both = (_listed(spec, dims) for dims in (rows, columns, both))
        own = f"{a!r} has dims {of_a} of its own, {b!r} {of_b}, both {of_both}"
        raise ProgramError(f"{own}; a matrix product has one, one and at most one", line.number)
    (row,), (column,), order = rows, columns, list(spec.dims)
    if order.index(row) > order.index(column):
        a, b, row, column = b, a, column, row
    dims = {"batch": next(iter(both), ""), "rows": row, "columns": column, "depth": depth}
    return Product(line, a, b, {role: dim for role, dim in dims.items() if dim})


def _listed(spec: MapSpec, dims: frozenset[str]) -> str:
    return f"[{', '.join(dim for dim in spec.dims if dim in dims)}]"
