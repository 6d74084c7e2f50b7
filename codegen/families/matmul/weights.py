"""What parts of a product's sum are multiplied with before they are added: scales of blocks of 8-bit factors.

In `sum(a * b * scale_a[row, depth // 128] * scale_b[col // 128, depth // 128], depth)` the factors are `a` and `b`; the
rest is the same for 128 of the depth at a time. Kernels add up the products of such a part, and multiply them once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from baracuda.runtime.families.matmul.schedules import PANEL

from ...program import Const, Line, Name, ProgramError, Reduce, to_source
from ...program.tree import Call, Expr, Query, Read, children, factors_in, mapped, selected_terms
from ..map.program import Parts, parts_of
from ..map.spec import MapSpec


@dataclass(frozen=True, slots=True)
class Weight:
    """An input that a weight is made of: along each of its axes a dim, and how many of its places share an element."""

    tensor: str
    axes: tuple[tuple[str, int], ...]


def with_weights(lines: Iterable[Line], factors: Collection[str]) -> tuple[Line, ...]:
    """The lines, in which what is multiplied with two of the `factors` in a sum is one weight, their third factor."""
    return tuple(replace(line, expr=_weighted(line.expr, factors)) for line in lines)


def _weighted(expr: Expr, factors: Collection[str]) -> Expr:
    condition, terms = selected_terms(expr)
    if terms is None or not isinstance(expr, Reduce):
        return expr
    parts = factors_in(terms)
    pair = [part for part in parts if isinstance(part, Name) and part.id in factors]
    rest = [part for part in parts if part not in pair]
    if len(pair) != 2 or not rest:
        return expr
    product = _multiplied([_multiplied(pair), _multiplied(rest)])
    return Reduce("sum", product if condition is None else Call("where", (condition, product, Const(0.0))), expr.dims)


def _multiplied(parts: Iterable[Expr]) -> Expr:
    first, *rest = parts
    for part in rest:
        first = Call("mul", (first, part))
    return first


def weights_of(weight: Expr, dims: Mapping[str, str], spec: MapSpec, parts: Parts, number: int) -> tuple[Weight, ...]:
    """What a weight is made of, in a product along `dims`, by their roles; raises ProgramError if none multiply it."""
    found = dict[str, Weight]()
    for part in _reads(weight, parts, number):
        if isinstance(part, Read):
            places_of = zip(part.dims, part.places, strict=True)
            one = Weight(part.tensor, tuple(_axis(part, dim, place, spec, number) for dim, place in places_of))
        else:
            one = Weight(part.id, tuple((dim, 1) for dim in spec.inputs[part.id].dims))
        for dim, places in one.axes:
            if dim not in dims.values():
                text = f"{one.tensor!r} varies along {dim}, and the product it is in along {', '.join(dims.values())}"
                raise ProgramError(text, number)
            if dim == dims["depth"] and places % PANEL:
                text = f"{one.tensor!r} is one number for {places} of {dim}; products add up {PANEL} of it at a time:"
                raise ProgramError(f"{text} read it at {dim} // {PANEL}, or // a multiple", number)
        if found.setdefault(one.tensor, one) != one:
            raise ProgramError(f"{one.tensor!r} is read at two places in one product; make them two inputs", number)
    return tuple(found.values())


def _reads(expr: Expr, parts: Parts, number: int) -> Iterator[Name | Read]:
    """The inputs that an expression reads, by way of lines, too."""
    match expr:
        case Reduce() | Query(what="index"):
            raise ProgramError(f"{to_source(expr)} is no part of a weight; make an input of it", number)
        case Name(id=name) if line := parts.line(name):
            yield from _reads(line.expr, parts, number)
        case Name(id=name):
            yield from [expr] if parts.dims.get(name) else []
        case Read():
            yield expr
        case _:
            for child in children(expr):
                yield from _reads(child, parts, number)


def _axis(read: Read, along: str, place: Expr, spec: MapSpec, number: int) -> tuple[str, int]:
    """The dim along an axis, and how many of its places share an element."""
    match place:
        case Query(what="index", of=dim) if dim == along:
            return dim, 1
        case Call(op="floor_divide", args=(Query(what="index", of=dim), Const(value=int(places)))) if places > 0:
            wanted = f"ceil_div({spec.dims[dim].of}, {places})"
            if spec.dims[along].of.replace(" ", "") == wanted.replace(" ", ""):
                return dim, places
            text = f"{read.tensor!r} has {spec.dims[along].of} elements along {along}; give it {wanted}"
            raise ProgramError(f"{text}, and none is outside", number)
    text = f"{read.tensor!r} is read at {to_source(place)} in a product; it can be read at a dim, or a dim // a number"
    raise ProgramError(text, number)


def of_cells(parts: Parts, weights: Iterable[Weight]) -> Parts:
    """The parts of a product's pass, whose sum has weights as terms, and reads these as if each cell had its own."""
    over = {weight.tensor: frozenset(dim for dim, _ in weight.axes) for weight in weights}
    names = {name: read.tensor for name, read in parts.reads.items() if read.tensor in over}

    def cell(expr: Expr) -> Expr:
        return Name(names.get(expr.id, expr.id)) if isinstance(expr, Name) else mapped(expr, cell)

    lines = tuple(replace(line, expr=cell(line.expr)) for line in parts.lines if line.name not in names)
    return parts_of(lines, parts.cells, {**parts.dims, **over})
