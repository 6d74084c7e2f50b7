"""The program of a row op, with reads of one element of each row as what schedules know: sums of which it is a term."""

from __future__ import annotations

from collections.abc import Iterator

from ...program import Call, Const, Expr, Line, Name, ProgramError, Reduce, parse
from ...program.source import to_source
from ...program.tree import Query, Read, mapped, varies, walk
from ...spec.scope import kinds_of, scope_of
from .spec import RowSpec


def row_lines(spec: RowSpec) -> tuple[Line, ...]:
    """The lines of the program; raises ProgramError for a read that is not of one element of each row.

    The others of its row are read anyway, so the element costs no access of its own.
    """
    scope = scope_of(spec)
    lines = parse(spec.program, scope)
    kinds, dims = kinds_of(spec, lines), dict(scope.values)
    cols = next(name for name, dim in spec.dims.items() if dim.axes != "rest")

    def summed(expr: Expr, number: int) -> Expr:
        match expr:
            case Read(tensor=tensor, computed=computed, places=places, outside=outside):
                place = places[expr.dims.index(cols)] if cols in expr.dims else Const(0)
                if {*computed} - {cols} or (computed and cols in varies(place, dims)):
                    text = f"{to_source(expr)!r} is not one element of each row; the map family reads at any place"
                    raise ProgramError(text, number)
                if kinds[tensor] == "int":
                    raise ProgramError(f"{tensor!r} holds ints, and the row family reads floats at places", number)
                return _element(tensor, place, cols, outside) if computed else Name(tensor)
            case Reduce(kind="var", arg=arg, dims=over):  # a row that is read once is there for a second look
                whole = summed(arg, number)
                away = Call("sub", (whole, Reduce("mean", whole, over)))
                return Reduce("mean", Call("mul", (away, away)), over)
        return mapped(expr, lambda e: summed(e, number))

    found: list[Line] = []
    for line in lines:
        found.append(Line(line.name, summed(line.expr, line.number), line.number))
        dims[line.name] = varies(line.expr, dims)
    return tuple(found)


def unplaced(spec: RowSpec) -> Iterator[str]:
    """The inputs with a value outside that no line reads at a computed place."""
    parts = (part for line in parse(spec.program, scope_of(spec)) for part in walk(line.expr))
    read = {part.tensor for part in parts if isinstance(part, Read) and part.computed}
    return (name for name, tensor in spec.inputs.items() if tensor.outside is not None and name not in read)


def _element(tensor: str, place: Expr, cols: str, outside: Expr) -> Expr:
    here = Call("equal", (Query("index", cols), place))
    element = Reduce("sum", Call("where", (here, Name(tensor), Const(0.0))), (cols,))
    if outside == Const(0.0):  # as a sum of nothing
        return element
    least, most = Call("less_equal", (Const(0), place)), Call("less", (place, Query("size", cols)))
    return Call("where", (Call("logical_and", (least, most)), element, outside))
