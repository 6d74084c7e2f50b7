"""The kinds of a program's values: floats, whole numbers, truth values, and elements of complex arrays."""

from __future__ import annotations

from collections.abc import Mapping

from .error import ProgramError
from .ops import OPS
from .remedies import OF_OTHERS
from .source import place_source
from .tree import Call, Const, Expr, Name, Query, Read, Reduce

Kinds = Mapping[str, str]  # name -> "float", "int", "bool" or "complex"


def kind_of(expr: Expr, kinds: Kinds) -> str:
    """Whether an expression is a "float" (of the accumulator's type), an "int" (64 bits), a "bool" or "complex"."""
    match expr:
        case Const(value=bool()):
            return "bool"
        case Const(value=int()):
            return "int"
        case Name(id=name):
            return kinds[name]
        case Query(what=what):
            return "bool" if what == "present" else "int"
        case Read(tensor=tensor, dims=dims, places=places):
            for dim, place in zip(dims, places, strict=True):
                if (kind := kind_of(place, kinds)) != "int":
                    text = f"{tensor!r} is read at {place_source(place)!r} along {dim}, which is a {kind}"
                    raise ProgramError(f"{text}; a place is an int")
            return kinds[tensor]
        case Call(op=op, args=args):
            return _result(op, [kind_of(a, kinds) for a in args])
        case Reduce(kind=kind, arg=arg):
            return _reduced(kind, kind_of(arg, kinds))
    return "float"


def _reduced(kind: str, of: str) -> str:
    """What a reduction gives: ints stay ints, and the place of an extreme is one."""
    if kind in ("any", "all"):
        if of != "bool":
            raise ProgramError(f"{kind} takes a bool, got {of}; compare, as in {kind}(x > 0, dim)")
        return "bool"
    if of == "bool":
        remedy = "write count(condition, dim) or any(condition, dim)"
        raise ProgramError(f"{kind} takes numbers, got a bool; {remedy}")
    if kind in ("argmax", "argmin"):
        return "int"
    return "float" if kind in ("mean", "var", "spread") else of


def _result(op: str, operands: list[str]) -> str:
    row = OPS[op]
    values = operands[1:] if op == "where" else operands
    for operand in values if row.takes != "number" else operands:
        if row.takes in ("int", "bool", "float", "complex") and operand != row.takes:
            other = f"; {text}" if (text := OF_OTHERS.get((op, operand))) else ""
            raise ProgramError(f"{row.symbol or op} takes operands of kind {row.takes}, got {operand}{other}")
        if row.takes == "number" and operand == "bool":
            raise ProgramError(f"{row.symbol or op} takes numbers, got a bool; use where(condition, a, b)")
    if op == "where" and operands[0] != "bool":
        raise ProgramError(f"where takes a bool as its condition, got {operands[0]}")
    if op == "where" and "bool" in values and set(values) != {"bool"}:
        raise ProgramError(f"where takes two numbers or two bools, got {' and '.join(values)}")
    if row.kind != "same":
        return row.kind
    return "float" if "float" in values else values[0]
