"""A tree read as plain arithmetic on arrays, which have one axis per dim of the scope, in its order (see `space`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .contraction import Contraction, contracted, sides_of
from .ops import OPS, NumPy
from .reductions import picked, reduce
from .space import Space
from .tree import Call, Cast, Const, Expr, Line, Name, Query, Read, Reduce


def evaluate(
    lines: Iterable[Line], inputs: Mapping[str, Any], space: Space, xp: Any = None
) -> dict[str, Any]:
    """Return every name's value; `xp` is a NumPy-like module (autograd's, to differentiate)."""
    names = dict(inputs)
    reader = Values(names, space, xp or NumPy())
    with np.errstate(all="ignore"):
        for line in lines:
            names[line.name] = reader.read(line.expr)
    return names


class Values:
    def __init__(self, names: dict[str, Any], space: Space, xp: Any) -> None:
        self.names, self.space, self.xp = names, space, xp

    def read(self, expr: Expr) -> Any:
        match expr:
            case Const(value=value):
                return self.space.real(value) if isinstance(value, float) else value
            case Name(id=name):
                return self.names[name]
            case Query(what="present", of=of):
                return of in self.space.present
            case Query(what="size", of=of):
                return self.space.extents[of]
            case Query(of=of):
                return self.space.index(of)
            case Cast(arg=arg):
                return _real(self.read(arg))
            case Call(op=op, args=args):
                return self._call(op, [self.read(a) for a in args])
            case Reduce(kind="sum", dims=dims) if c := Contraction.of(expr, self.names, self.names.get, self.space):
                sides, weights = [self.names[name] for name in c.factors], [self.read(w) for w in c.weights]
                if (placed := sides_of(weights, sides)) is None:
                    return reduce(self.xp, "sum", self.read(expr.arg), dims, self.space)
                for side, weight in zip(placed, weights, strict=True):
                    sides[side] = sides[side] * weight
                holds = None if c.condition is None else self.read(c.condition)
                return contracted(self.xp, sides[0], sides[1], dims, self.space, holds)
            case Reduce(kind=kind, arg=arg, dims=dims):
                return reduce(self.xp, kind, self.read(arg), dims, self.space)
            case Read(tensor=tensor, dims=dims, places=places, outside=outside):
                inside, found = picked(self.xp, self.names[tensor], dims, [self.read(p) for p in places], self.space)
                return self.xp.where(inside, found, self.read(outside))
        raise AssertionError(expr)

    def _call(self, op: str, args: list[Any]) -> Any:
        row = OPS[op]
        return wrapped(row.numpy(self.xp, *(map(_real, args) if row.kind == "float" else args)))


def wrapped(value: Any) -> Any:
    """Python's whole numbers have no end, a kernel's have 64 bits."""
    return np.int64((value + 2**63) % 2**64 - 2**63) if type(value) is int else value


def _real(value: Any) -> Any:
    """`value` as a floating-point number, its type kept if it is one."""
    is_float = isinstance(value, float) or getattr(value, "dtype", np.dtype(int)).kind in "fc"
    return value if is_float else 1.0 * value
