"""Parts of the rows, or of the depth, that each matrix of a batch has, by an array of ints: groups of rows.

`sum(where(g == index(group), x * w, 0.0), group, depth)` multiplies each row `i` of `x` by the matrix `w[g[i]]`, where
`g = min(where(index(i) < ends, index(group), size(group)), group)` is the first group that ends beyond the row: a
matrix has a segment of the rows. Summed over `i` alone, a matrix has a segment of the depth. With `index(i) < counts`
as its condition, each matrix has rows, or a depth, of its own, of which the first count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...program import Line, Name, ProgramError, Reduce
from ...program.tree import Call, Const, Expr, Query, reads, terms_of
from ..map.program import Parts, parts_of
from ..map.spec import MapSpec


@dataclass(frozen=True, slots=True)
class Span:
    """Of which dim each matrix has a part; with `segments` parts follow each other up to the `ends`."""

    ends: str  # an array of ints along the matrices
    dim: str
    matrix: str  # the dim of the batch
    segments: bool


def span_of(expr: Expr, spec: MapSpec, parts: Parts, number: int = 0) -> Span | None:
    """What the condition of a product's terms says; raises ProgramError if kernels know no such condition."""
    terms = terms_of(expr)
    if terms is None or terms.condition is None:
        return None
    assert isinstance(expr, Reduce)
    span = _segment(terms.condition, parts) or _count(terms.condition)
    tensor = spec.inputs.get(span.ends) if span else None
    if span is None or tensor is None or spec.sort_of(tensor) != "int" or tensor.optional:
        known = "number == index(dim), where number = min(where(index(i) < ends, index(dim), size(dim)), dim)"
        raise ProgramError(f"terms of a matrix product count where {known}, or where index(i) < counts", number)
    if len(tensor.dims) != 1:
        raise ProgramError(f"{span.ends!r} ends a part of each matrix; give it one dim", number)
    span = Span(span.ends, span.dim, tensor.dims[0], span.segments)
    factors = [parts.dims[terms.left], parts.dims[terms.right]]
    held = sum(span.matrix in dims for dims in factors)
    if span.segments and span.dim not in expr.dims and (held != 1 or span.matrix not in expr.dims):
        text = f"each of {span.dim} is multiplied by one matrix; sum over {span.matrix} too, which one factor has"
        raise ProgramError(text, number)
    if span.segments and span.dim in expr.dims and (held or span.matrix in expr.dims):
        text = f"each segment of {span.dim} makes one matrix; no factor has the dim {span.matrix}"
        raise ProgramError(text, number)
    if not span.segments and (held != 2 or span.matrix in expr.dims):
        text = f"{span.ends!r} counts along {span.dim} of each matrix; both factors have the dim {span.matrix}"
        raise ProgramError(text, number)
    return span


def by_ends(parts: Parts, spec: MapSpec, products: Iterable[str]) -> Parts:
    """The parts with products whose segments are read off `ends`: what numbers rows need not be computed for them."""
    spans = {name: span_of(line.expr, spec, parts) for name in products if (line := parts.line(name))}
    lines = [Line(x.name, _ended(x.expr, spans.get(x.name)), x.number) for x in parts.lines]
    needed, pending = set[str](), [*spec.outputs]
    of = {line.name: line.expr for line in lines}
    while pending:
        name = pending.pop()
        if name in of and name not in needed:
            needed.add(name)
            pending += reads(of[name])
    return parts_of(tuple(line for line in lines if line.name in needed), parts.cells, parts.dims)


def without_span(expr: Expr) -> Expr:
    """A product whose terms count without a condition."""
    match expr:
        case Reduce(kind="sum", arg=Call(op="where", args=(_, product, Const(value=0))), dims=dims):
            return Reduce("sum", product, dims)
    return expr


def _ended(expr: Expr, span: Span | None) -> Expr:
    terms = terms_of(expr)
    if span is None or terms is None or not isinstance(expr, Reduce):
        return expr
    return Reduce("sum", Call("where", (_before(span.dim, span.ends), terms.product, Const(0.0))), expr.dims)


def _before(dim: str, ends: str) -> Expr:
    return Call("less", (Query("index", dim), Name(ends)))


def _count(condition: Expr) -> Span | None:
    match condition:
        case Call(op="less", args=(Query(what="index", of=dim), Name(id=ends))):
            return Span(ends, dim, "", segments=False)
        case Call(op="greater", args=(Name(id=ends), Query(what="index", of=dim))):
            return Span(ends, dim, "", segments=False)
    return None


def _segment(condition: Expr, parts: Parts) -> Span | None:
    match condition:
        case Call(op="equal", args=(Name(id=number), Query(what="index", of=matrix))):
            pass
        case Call(op="equal", args=(Query(what="index", of=matrix), Name(id=number))):
            pass
        case _:
            return None
    line = parts.line(number)
    while line is not None and isinstance(line.expr, Name):  # as reductions are lifted
        line = parts.line(line.expr.id)
    match line and line.expr:
        case Reduce(kind="min", arg=Call(op="where", args=(inside, Query("index", of=of), Query("size", of=size)))):
            ended = _count(inside)
            if ended and of == size == matrix:
                return Span(ended.ends, ended.dim, matrix, segments=True)
    return None
