"""Reductions by an index: of terms that count only where an array of ints holds the index of a kept cell.

``sum(where(ids == index(row), x, 0.0), token)`` needs no cell of another row: kernels read the tokens of each row only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ...program import Expr, Line, Name, Reduce
from ...program.invert import all_of
from ...program.tree import Call, Const, Query
from .program import Parts
from .spec import MapSpec

Lists = tuple[str, str]  # the array of keys, and the dim of the index
_NONE = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf}  # what a reduction takes no notice of


def lists_of(spec: MapSpec, parts: Parts) -> Lists | None:
    """The keys that all reductions of a pass are by; None where one also needs other terms."""
    found = {_keys_of(line.expr) for line in parts.sum_lines}
    lists = found.pop() if len(found) == 1 else None
    if lists is None or not {*spec.outputs} <= parts.late:
        return None
    keys, dim = lists
    tensor, summed = spec.inputs.get(keys), {*parts.summed}
    if tensor is None or spec.sort_of(tensor) != "int" or tensor.optional or parts.placed(keys):
        return None
    if not tensor.over & summed or dim in tensor.over:
        return None
    in_product = any(dim in group for t in spec.tensors.values() for group in t.groups if len(group) > 1)
    return None if dim in summed or in_product else lists


def alone(parts: Parts) -> Parts:
    """The parts of a pass that reduces by an index, with terms that are those of their row."""
    return replace(parts, lines=tuple(_alone(line) if line.name in parts.sums else line for line in parts.lines))


def _keys_of(expr: Expr) -> Lists | None:
    match expr:
        case Reduce(kind=kind, arg=Call(op="where", args=(condition, _, Const(value=other)))):
            keys = [key for part in _conditions(condition) if (key := _key(part))]
            return keys[0] if len(keys) == 1 and other == _NONE.get(kind) else None
    return None


def _alone(line: Line) -> Line:
    match line.expr:
        case Reduce(kind=kind, arg=Call(op="where", args=(condition, term, other)), dims=dims):
            others = [part for part in _conditions(condition) if not _key(part)]
            alone = Call("where", (all_of(others), term, other)) if others else term
            return replace(line, expr=Reduce(kind, alone, dims))
    return line


def _conditions(expr: Expr) -> Iterable[Expr]:
    """What must hold for a condition to."""
    match expr:
        case Call(op="logical_and", args=args):
            return [part for arg in args for part in _conditions(arg)]
    return [expr]


def _key(condition: Expr) -> Lists | None:
    match condition:
        case Call(op="equal", args=(Name(id=keys), Query(what="index", of=dim))):
            return keys, dim
        case Call(op="equal", args=(Query(what="index", of=dim), Name(id=keys))):
            return keys, dim
    return None
