"""The tree of a program: frozen, comparable, small enough to hold in the head."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any


@dataclass(frozen=True, slots=True)
class Const:
    value: bool | int | float


@dataclass(frozen=True, slots=True)
class Name:
    """A tensor's element, a descriptor's scalar or the value of an earlier line."""

    id: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function of `ops.OPS` on its operands."""

    op: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """`kind`, one of `ops.REDUCTIONS`, of `arg` over the dims named.

    Map programs have "spread", too: the sum of the squared distances from the mean, which a var is made of.
    """

    kind: str
    arg: Expr
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """What is known about the problem and not read from a tensor: index(dim), size(dim), present(tensor)."""

    what: str
    of: str


@dataclass(frozen=True, slots=True)
class Cast:
    """Rounded to an element type ("T", "acc", "f16", ...) and back to the accumulator."""

    to: str
    arg: Expr


@dataclass(frozen=True, slots=True)
class Read:
    """`tensor[places]`: its element at a computed place along each of its `dims`, or `outside` where there is none."""

    tensor: str
    dims: tuple[str, ...]
    places: tuple[Expr, ...]
    outside: Expr

    @property
    def computed(self) -> tuple[str, ...]:
        """The dims whose place is another than their own index."""
        return tuple(d for d, place in zip(self.dims, self.places, strict=True) if place != Query("index", d))


Expr = Const | Name | Call | Reduce | Query | Cast | Read


@dataclass(frozen=True, slots=True)
class Line:
    """``name = expr``; `number` is its line within the program's text."""

    name: str
    expr: Expr
    number: int = 0


@dataclass(frozen=True, slots=True)
class Axes:
    """What each axis of an input runs along, and the value that is read `outside` of them, if it is declared."""

    dims: tuple[str, ...]
    outside: Const | Name | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What a program may name: its values with the dims each varies along, its dims, optional tensors, functions.

    `axes` are those of the inputs, which may be read at computed places; `kinds` those of inputs and outputs.
    """

    dims: tuple[str, ...]
    values: dict[str, frozenset[str]]
    optional: frozenset[str] = frozenset()
    functions: Mapping[str, Any] = field(default_factory=dict)
    axes: Mapping[str, Axes] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.dims, frozenset(self.values), self.optional, frozenset(self.functions)))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a sum of products adds up: `left * right`, times a weight if it has one, or only where a condition holds."""

    left: str
    right: str
    condition: Expr | None = None
    weight: Expr | None = None

    @property
    def product(self) -> Expr:
        product = Call("mul", (Name(self.left), Name(self.right)))
        return product if self.weight is None else Call("mul", (product, self.weight))


def terms_of(expr: Expr) -> Terms | None:
    """The terms of `sum(a * b, ...)` or `sum(where(condition, a * b, 0.0), ...)`, with a third factor as their weight.

    `a` and `b` are names.
    """
    condition, arg = selected_terms(expr)
    match arg:
        case Call(op="mul", args=(Name(id=a), Name(id=b))):
            return Terms(a, b, condition)
        case Call(op="mul", args=(Call(op="mul", args=(Name(id=a), Name(id=b))), weight)):
            return Terms(a, b, condition, weight)
    return None


def selected_terms(expr: Expr) -> tuple[Expr | None, Expr | None]:
    """Of `sum(terms, ...)` or `sum(where(condition, terms, 0.0), ...)`, the condition and the terms."""
    match expr:
        case Reduce(kind="sum", arg=Call(op="where", args=(condition, terms, Const(value=0)))):
            return condition, terms
        case Reduce(kind="sum", arg=terms):
            return None, terms
    return None, None


def is_product(expr: Expr) -> bool:
    """Whether it is a sum of products."""
    _, terms = selected_terms(expr)
    return terms is not None and len(factors_in(terms)) > 1


def place_of(expr: Expr) -> Expr | None:
    """Of an argmax or argmin, the place of a cell along its dims, the last of them fastest."""
    if not isinstance(expr, Reduce) or expr.kind not in ("argmax", "argmin"):
        return None
    return place_along(expr.dims)


def place_along(dims: Sequence[str]) -> Expr:
    """The place of a cell along dims, the last of them fastest."""
    place: Expr = Query("index", dims[0])
    for dim in dims[1:]:
        place = Call("add", (Call("mul", (place, Query("size", dim))), Query("index", dim)))
    return place


def factors_in(expr: Expr) -> tuple[Expr, ...]:
    """What is multiplied in an expression, in order: of `a * (b * c)` all three."""
    if isinstance(expr, Call) and expr.op == "mul":
        return tuple(factor for arg in expr.args for factor in factors_in(arg))
    return (expr,)


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Call(args=args):
            return args
        case Reduce(arg=arg) | Cast(arg=arg):
            return (arg,)
        case Read(places=places, outside=outside):
            return (*places, outside)
    return ()


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with each of its operands, terms and places as `change` makes them."""
    match expr:
        case Call(op=op, args=args):
            return Call(op, tuple(map(change, args)))
        case Reduce(kind=kind, arg=arg, dims=dims):
            return Reduce(kind, change(arg), dims)
        case Cast(to=to, arg=arg):
            return Cast(to, change(arg))
        case Read(tensor=tensor, dims=dims, places=places, outside=outside):
            return Read(tensor, dims, tuple(map(change, places)), outside)
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its parts, each before its own."""
    pending = [expr]
    while pending:
        yield (part := pending.pop())
        pending += reversed(children(part))


@lru_cache(maxsize=4096)
def reads(expr: Expr) -> frozenset[str]:
    """The names an expression needs before it can be computed."""
    return frozenset(e.id if isinstance(e, Name) else e.tensor for e in walk(expr) if isinstance(e, Name | Read))


def unused(wish: str, taken: Container[str]) -> str:
    """The first of `wish`, `wish_2`, `wish_3` and so on that is not in `taken`."""
    return next(name for n in count(1) if (name := wish if n == 1 else f"{wish}_{n}") not in taken)


def at_index(dim: str, expr: Expr) -> Expr | None:
    """What the index of `dim` is compared with, if that is what `expr` does."""
    match expr:
        case Call(op="equal", args=(Query(what="index", of=of), place)) if of == dim:
            return place
    return None


def varies(expr: Expr, values: dict[str, frozenset[str]]) -> frozenset[str]:
    """The dims along which the value of `expr` differs."""
    match expr:
        case Name(id=name):
            return values[name]
        case Query(what="index", of=dim):
            return frozenset({dim})
        case Reduce(arg=arg, dims=dims):
            return varies(arg, values) - set(dims)
    return frozenset().union(*(varies(child, values) for child in children(expr)))
