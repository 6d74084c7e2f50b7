"""How large the whole numbers of a program may become: where 31 bits hold them all, kernels compute with 32.

No number exceeds its bound in magnitude. Bounds are made of numbers, fields of the descriptor and sizes of dims, each
with an underscore before its name and at least 1, so that what is made of a bound is no less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...program import Expr
from ...program.tree import Call, Const, Name, Query, Read, walk

if TYPE_CHECKING:
    from .op import Body, PlacedRead

_MOST, _LONGEST = 8, 120  # bounds that are worth their evaluation, and characters of one
_END = 2**31

Term = int | str | tuple[str, "Term", "Term"]  # a sum ("+") or a product ("*") of two
Bound = frozenset[Term]  # the largest of which is the bound
_TERMS = 32  # as many as a bound may have, and be made of
_UNKNOWN: Bound = frozenset({_END})
Bounds = Mapping[str, Bound]  # of names of whole numbers that have one


def bounds_of(bodies: Sequence[Body]) -> tuple[str, ...]:
    """The bounds of what bodies compute of indices, sizes and fields; () where there is nothing, or one is too long."""
    terms = {term for exprs, bounds in _scopes(bodies) for expr in exprs for term in _tops(expr, bounds)}
    if not any(isinstance(term, tuple) for term in terms) and not any(body.placed for body in bodies):
        return ()
    if (largest := _largest(terms)) == _UNKNOWN:
        return ()
    texts = tuple(sorted(_text(term) for term in largest))
    return texts if len(texts) <= _MOST and all(len(text) <= _LONGEST for text in texts) else ()


def long_scalars(bodies: Iterable[Body]) -> frozenset[str]:
    """The fields that seed random numbers, which have 64 bits."""
    exprs = (e for exprs, _ in _scopes(bodies) for x in exprs for e in walk(x))
    seeds = (arg for e in exprs if isinstance(e, Call) and e.op == "philox" for arg in e.args)
    return frozenset(e.id for arg in seeds for e in walk(arg) if isinstance(e, Name))


def divisors(bodies: Sequence[Body]) -> frozenset[str]:
    """The fields by which bodies divide."""
    exprs = (e for exprs, _ in _scopes(bodies) for x in exprs for e in walk(x))
    by = {e.args[1] for e in exprs if isinstance(e, Call) and e.op in ("floor_divide", "remainder")}
    places = (read.scalars for body in bodies for read in _all_placed(body))
    ints = {s.name for of in (*places, *(body.scalars for body in bodies)) for s in of if s.kind == "int"}
    return frozenset(e.id for e in by if isinstance(e, Name)) & ints - long_scalars(bodies)


def _all_placed(of: Body | PlacedRead) -> Iterator[PlacedRead]:
    for read in of.placed:
        yield read
        yield from _all_placed(read)


def has_bounds(read: PlacedRead) -> bool:
    """Whether its places are bounded."""
    exprs, bounds = next(_scopes_of(read))
    return all(_bound(place, bounds) for place in exprs[: len(read.places)])


def _scopes(bodies: Iterable[Body]) -> Iterator[tuple[list[Expr], Bounds]]:
    """What is computed in one place, and the bounds of what has a name there."""
    for body in bodies:
        for of in (body, *(of for _, of in body.kinds)):
            values = (*of.shared, *of.values)
            exprs = [v.expr for v in values] + [s.expr for s in of.stores if s.expr] + [s.arg for s in of.sums]
            exprs += [s.place for s in of.sums if s.place is not None]
            scalars = (s.name for s in body.scalars if s.kind == "int")
            # Places of extremes, where -1 is of none.
            lines = [*((s.name, s.place) for s in of.known if s.place), *((v.name, v.expr) for v in values)]
            yield exprs, _named(scalars, lines)
        for read in body.placed:
            yield from _scopes_of(read)


def _scopes_of(read: PlacedRead) -> Iterator[tuple[list[Expr], Bounds]]:
    scalars = (s.name for s in read.scalars if s.kind == "int")
    yield [*read.places, *(v.expr for v in read.values)], _named(scalars, ((v.name, v.expr) for v in read.values))
    for inner in read.placed:
        yield from _scopes_of(inner)


def _named(scalars: Iterable[str], values: Iterable[tuple[str, Expr]]) -> Bounds:
    bounds = {str(name): frozenset[Term]({f"_{name}"}) for name in scalars}
    for name, expr in values:
        if bound := _bound(expr, bounds):
            bounds[str(name)] = bound
    return bounds


def _tops(expr: Expr, bounds: Bounds) -> set[Term]:
    """The bounds of the largest parts of `expr` that have one."""
    match expr:
        case Call(op="where", args=(condition, a, b)):
            return _tops(condition, bounds) | _tops(a, bounds) | _tops(b, bounds)
        case _ if bound := _bound(expr, bounds):
            conditions = (e.args[0] for e in walk(expr) if isinstance(e, Call) and e.op == "where")
            return {*bound}.union(*(_tops(condition, bounds) for condition in conditions))
        case Call(args=parts) | Read(places=parts):
            return set[Term]().union(*(_tops(part, bounds) for part in parts))
    arg = getattr(expr, "arg", None)
    return set() if arg is None else _tops(arg, bounds)


def _bound(expr: Expr, bounds: Bounds) -> Bound:
    """The bound of a whole number that is made of bounded ones, and no less than theirs; empty of anything else."""
    match expr:
        case Const(value=int() as value) if not isinstance(value, bool) and abs(value) < _END:
            return frozenset({max(abs(value), 1)})
        case Name(id=name):
            return bounds.get(name, frozenset())
        case Query(what="index" | "size", of=dim):
            return frozenset({f"_{dim}"})
        case Call(op="floor_divide", args=(a, Const(value=int() as by))) if by > 0:
            return _bound(a, bounds) if by < _END else frozenset()
        case Call(op="neg" | "abs" | "stop_gradient", args=(a,)):
            return _bound(a, bounds)
        case Call(op="invert", args=(a,)):
            inner = _bound(a, bounds)
            return _each("+", inner, frozenset({1})) if inner else inner
        case Call(op=op, args=(*_, a, b)) if op in _OF_TWO:
            of = _bound(a, bounds), _bound(b, bounds)
            if not all(of):
                return frozenset()
            return _either(*of) if _OF_TWO[op] == "max" else _each(_OF_TWO[op], *of)
    return frozenset()


# How the bound of a number follows from those of the two that it is made of; 2 (a + b) is that of their bits.
_OF_TWO = {"add": "+", "sub": "+", "mul": "*", "bitwise_and": "2+", "bitwise_or": "2+", "bitwise_xor": "2+"}
_OF_TWO |= dict.fromkeys(("where", "maximum", "minimum", "floor_divide", "remainder"), "max")


def _each(op: str, a: Bound, b: Bound) -> Bound:
    """The bound of a sum or product of two numbers."""
    if _UNKNOWN in (a, b) or len(a) * len(b) > _TERMS or max(map(_size, a)) + max(map(_size, b)) > _TERMS:
        return _UNKNOWN
    terms = frozenset[Term]((op[-1], x, y) for x in a for y in b)
    return _each("*", frozenset({2}), terms) if op == "2+" else _largest(terms)


def _either(a: Bound, b: Bound) -> Bound:
    """The bound of a number that is one of two; every bound is at least 1."""
    both = (a | b) - {1} or a
    return _UNKNOWN if _UNKNOWN in (a, b) or len(both) > _TERMS else both


def _size(term: Term) -> int:
    """How many numbers, fields and dims it is made of."""
    return _size(term[1]) + _size(term[2]) if isinstance(term, tuple) else 1


def _largest(terms: Iterable[Term]) -> Bound:
    """Without numbers, and what is part of another, if there is more."""
    found = {*terms}
    if len(found) > _TERMS or _END in found:
        return _UNKNOWN
    inner = {part for term in found for part in _parts(term)}
    return frozenset(term for term in found if term not in inner and not isinstance(term, int)) or frozenset(found)


def _parts(term: Term) -> Iterator[Term]:
    for part in term[1:] if isinstance(term, tuple) else ():
        yield part
        yield from _parts(part)


def _text(term: Term) -> str:
    if not isinstance(term, tuple):
        return str(term)
    op, *parts = term
    texts = [f"({_text(x)})" if op == "*" and isinstance(x, tuple) and x[0] == "+" else _text(x) for x in parts]
    return f" {op} ".join(texts)
