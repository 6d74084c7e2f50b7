"""Places read backwards: which cells read a given element of an array, and under which conditions there is one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from .tree import Call, Const, Expr, Name, Query, Read, mapped, walk

Inverse = tuple[Expr, tuple[Expr, ...]]  # an index, and what must hold for it
NONE: tuple[Expr, ...] = ()


def indices_in(expr: Expr) -> frozenset[str]:
    """The dims whose index an expression names."""
    return frozenset(e.of for e in walk(expr) if isinstance(e, Query) and e.what == "index")


def inverses(place: Expr, dim: str, target: Expr, sizes: frozenset[Expr]) -> tuple[Inverse, ...] | None:
    """All indices along `dim` for which `place` is `target`, and the conditions of each beside its range.

    `sizes` are what says the size of the dim, which whole turns may be taken off by. None where their number is not
    known, or nothing is.
    """
    match place:
        case Query(what="index", of=of) if of == dim:
            return ((target, NONE),)
        case Call(op="neg", args=(a,)):
            return inverses(a, dim, Call("neg", (target,)), sizes)
        case Call(op="abs", args=(a,)):
            return _joined(
                _where(inverses(a, dim, target, sizes), *_is_natural(target)),
                _where(inverses(a, dim, Call("neg", (target,)), sizes), Call("less", (Const(0), target))),
            )
        case Call(op="where", args=(condition, a, b)):
            sides = inverses(a, dim, target, sizes), inverses(b, dim, target, sizes)
            holds = condition, Call("logical_not", (condition,))
            return _joined(*(_where(side, that, dim=dim) for side, that in zip(sides, holds, strict=True)))
        case Call(op="remainder", args=(a, modulus)) if modulus in sizes and _is_shift(a, dim):
            found = inverses(a, dim, target, sizes)
            return found and tuple((Call("remainder", (index, modulus)), conditions) for index, conditions in found)
        case Call(op=op, args=(a, b)) if (dim in indices_in(a)) != (dim in indices_in(b)):
            moved = _moved(op, a, b, target, first=dim in indices_in(a))
            if moved is None:
                return None
            inner, left, conditions = moved
            found = inverses(inner, dim, left, sizes)
            return found and tuple((index, own + conditions) for index, own in found)
    return None


def _joined(*sides: tuple[Inverse, ...] | None) -> tuple[Inverse, ...] | None:
    known = [side for side in sides if side is not None]
    return tuple(found for side in known for found in side) if len(known) == len(sides) else None


def _where(found: tuple[Inverse, ...] | None, *that: Expr, dim: str = "") -> tuple[Inverse, ...] | None:
    """The indices for which conditions hold, too; those that name the index along `dim`, in their cells."""
    return found and tuple((at, (*own, *(with_index(e, dim, at) for e in that))) for at, own in found)


def _is_natural(expr: Expr) -> tuple[Expr, ...]:
    """The condition that an int is not negative; none for indices, counted from either end, and sums of these."""

    def is_natural(e: Expr) -> bool:
        match e:
            case Query():
                return True
            case Call(op="add", args=args):
                return all(map(is_natural, args))
            case Call(op="sub", args=(last, Query(what="index", of=dim))):
                return last == Call("sub", (Query("size", dim), Const(1)))
            case Call(op="sub", args=(Query(what="size"), Const(value=1))):
                return True  # beside an index
        return False

    return NONE if is_natural(expr) else (Call("less_equal", (Const(0), expr)),)


def with_index(expr: Expr, dim: str, index: Expr) -> Expr:
    """`expr` in the cell with that index along a dim."""
    return index if expr == Query("index", dim) else mapped(expr, lambda e: with_index(e, dim, index))


def _moved(op: str, a: Expr, b: Expr, target: Expr, *, first: bool) -> tuple[Expr, Expr, tuple[Expr, ...]] | None:
    """The operand that holds the dim, what it must be for the result to be `target`, and under which condition."""
    inner, other = (a, b) if first else (b, a)
    match op:
        case "add":
            return inner, minus(target, other), NONE
        case "sub":
            return inner, plus(target, b) if first else minus(a, target), NONE
        case "bitwise_xor":
            return inner, Call("bitwise_xor", (target, other)), NONE
        case "mul" if other != Const(0):
            whole = Call("equal", (Call("remainder", (target, other)), Const(0)))
            return inner, Call("floor_divide", (target, other)), (whole,)
    return None


def _is_shift(expr: Expr, dim: str) -> bool:
    """Whether it is the index along `dim`, or minus that, plus what does not name it."""
    match expr:
        case Query():
            return True
        case Call(op="neg" | "add" | "sub", args=args):
            return [_is_shift(a, dim) for a in args if dim in indices_in(a)] == [True]
    return False


def plus(a: Expr, b: Expr) -> Expr:
    match b:
        case Const(value=0):
            return a
        case Call(op="neg", args=(c,)):
            return Call("sub", (a, c))
    return Call("add", (a, b))


def minus(a: Expr, b: Expr) -> Expr:
    match b:
        case Const(value=0):
            return a
        case Call(op="sub", args=(other, c)) if other == a:
            return c
        case Call(op="neg", args=(c,)):
            return Call("add", (a, c))
    return Call("sub", (a, b))


def all_of(conditions: Iterable[Expr]) -> Expr:
    return reduce(lambda a, b: Call("logical_and", (a, b)), conditions)


def is_within(expr: Expr, dim: str) -> tuple[Expr, ...]:
    """The conditions that an index is one of `dim`; none for what is left of whole turns."""
    if isinstance(expr, Call) and expr.op == "remainder":
        return NONE
    return Call("less_equal", (Const(0), expr)), Call("less", (expr, Query("size", dim)))


def is_zero_outside(expr: Expr, zero: frozenset[str], finite: frozenset[str]) -> bool:
    """Whether it is 0 where the tensors in `zero` are: one of them times numbers, `finite` or written out."""
    match expr:
        case Read(tensor=tensor):
            return tensor in zero
        case Call(op="neg" | "real" | "imag", args=(a,)) | Call(op="where", args=(_, a, Const(value=0))):
            return is_zero_outside(a, zero, finite)
        case Call(op="mul" | "div" as op, args=(a, b)):
            if is_zero_outside(a, zero, finite):
                return _is_number(b, finite)
            return op == "mul" and _is_number(a, finite) and is_zero_outside(b, zero, finite)
    return False


def _is_number(expr: Expr, finite: frozenset[str]) -> bool:
    match expr:
        case Const() | Query(what="size"):
            return True
        case Name(id=name):
            return name in finite
        case Call(args=args):
            return all(_is_number(a, finite) for a in args)
    return False
