"""Reductions over the columns of a product that its kernel makes: nothing of every element is in memory then.

A kernel reduces the columns of a part, and a pass of a map reduces parts. In the program these are reductions of their
own, over a dim that has an index for each part:

    top = max(z, col)                 part = max(where(index(col) // 64 == index(part), z, -inf), col)
                                      top = max(part, part)

A sum of `exp(z - top)` takes the largest of its own part, and is scaled once the largest of all is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from baracuda.runtime.families.matmul.schedules import PART

from ...program import Const, Expr, Line, Name, Reduce
from ...program.tree import Call, Query, reads
from ...spec.scope import kinds_of
from ..map.program import Parts, numbered, parts_of
from ..map.spec import AxesSpec, MapSpec
from .product import Product

_NONE = {"sum": 0.0, "max": -math.inf, "min": math.inf}


@dataclass(frozen=True, slots=True)
class Sinks:
    """What kernels make of a product for each part of its columns: reductions, and those that rest on these."""

    of: str  # the product
    part: str  # the dim of parts
    phases: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for phase in self.phases for name in phase)


def with_parts(
    spec: MapSpec, parts: Parts, products: Mapping[str, Product]
) -> tuple[MapSpec, Parts, tuple[Sinks, ...]]:
    """The program with reductions of parts, the spec with their dims, and which they are."""
    found = list[Sinks]()
    for name, product in products.items():
        column = product.dims["columns"]
        is_plain = product.span is None and not product.weights and column not in spec.chunks
        if is_plain and kinds_of(spec, parts.lines).get(name) == "float":
            reduced = _Reduced(parts, name, column, frozenset(products))
            if reduced.is_all_of(spec):
                spec, parts, sinks = _rewritten(spec, parts, reduced)
                found.append(sinks)
    return spec, parts, tuple(found)


def without_part(expr: Expr, column: str) -> Expr:
    """A reduction of a part as its kernel computes it: over the columns that it has."""
    match expr:
        case Reduce(kind=kind, arg=Call(op="where", args=(_, arg, _))):
            return Reduce(kind, arg, (column,))
    return expr


class _Reduced:
    """The reductions over the columns of a product: what is reduced at once, and `exp(z - max(z))`, whose sum waits."""

    def __init__(self, parts: Parts, product: str, column: str, products: frozenset[str]) -> None:
        self.parts, self.product, self.column, self.products = parts, product, column, products
        self.behind = dict[str, frozenset[str]]()  # the reductions that each line rests on, itself included
        for line in parts.lines:
            inner = frozenset[str]().union(*(self.behind.get(name, frozenset()) for name in reads(line.expr)))
            self.behind[line.name] = inner | ({line.name} if line.name in parts.sums else frozenset())
        self.direct = [line.name for line in self._sums() if self._behind(line) == {product}]
        self.scaled = {line.name: top for line in self._sums() if (top := self._top(line))}

    def is_all_of(self, spec: MapSpec) -> bool:
        """Whether nothing else reads elements of the product, or what is made of them."""
        cells = {name for name, of in self.behind.items() if self.product in of and self._is_of_cells(name)}
        sunk = {self.product, *self.direct, *self.scaled}
        others = [line for line in self.parts.sum_lines if line.name not in sunk]
        read = frozenset(spec.outputs).union(*(reads(x.expr) for x in others))
        return bool(self.direct) and cells.isdisjoint(read)

    def _is_of_cells(self, name: str) -> bool:
        return self.column in self.parts.dims[name]

    def _sums(self) -> Iterator[Line]:
        for line in self.parts.sum_lines:
            is_along = isinstance(line.expr, Reduce) and line.expr.dims == (self.column,) and line.expr.kind in _NONE
            if is_along and line.name not in self.products:
                yield line

    def _behind(self, line: Line) -> frozenset[str]:
        return self.behind[line.name] - {line.name}

    def _top(self, line: Line) -> str:
        """The max of `z` of a sum of `exp(z - max(z))`, or ""."""
        match line.expr:
            case Reduce(kind="sum", arg=Call(op="exp", args=(Call(op="sub", args=(value, Name(id=name))),))):
                top = self.parts.line(name)
                while top is not None and (other := _alias(top.expr)):
                    top = self.parts.line(other)
                if top is not None and top.name in self.direct and top.expr == Reduce("max", value, (self.column,)):
                    return top.name
        return ""


def _alias(expr: Expr) -> str:
    """The name that has the same value."""
    match expr:
        case Name(id=name) | Call(op="stop_gradient", args=(Name(id=name),)):
            return name
    return ""


def _rewritten(spec: MapSpec, parts: Parts, of: _Reduced) -> tuple[MapSpec, Parts, Sinks]:
    taken = {*parts.dims, *spec.dims, *spec.descriptor}

    def fresh(wish: str) -> str:
        name = next(n for n in numbered(wish) if n not in taken)
        taken.add(name)
        return name

    part = fresh(f"{of.column}_part")
    names = {name: fresh(f"{name}_of_part") for name in (*of.direct, *of.scaled)}
    place = Call("floor_divide", (Query("index", of.column), Const(PART)))
    inside = Call("equal", (place, Query("index", part)))
    lines = list[Line]()
    for line in parts.lines:
        if line.name not in names or not isinstance(line.expr, Reduce):
            lines.append(line)
            continue
        kind, term, own = line.expr.kind, line.expr.arg, Name(names[line.name])
        total: Expr = own
        if line.name in of.scaled and isinstance(term, Call) and isinstance(term.args[0], Call):
            value, top = term.args[0].args
            largest = Name(names[of.scaled[line.name]])
            is_finite = Call("equal", (Call("sub", (largest, largest)), Const(0.0)))
            around = Call("where", (is_finite, largest, Const(0.0)))  # of a part without a number, exp is 0
            term = Call("exp", (Call("sub", (value, around)),))
            total = Call("mul", (own, Call("exp", (Call("sub", (largest, top)),))))
        term = Call("where", (inside, term, Const(_NONE[kind])))
        lines.append(Line(own.id, Reduce(kind, term, (of.column,)), line.number))
        lines.append(Line(line.name, Reduce(kind, total, (part,)), line.number))
    dims = {**spec.dims, part: AxesSpec(of=f"ceil_div({spec.dims[of.column].of}, {PART})")}
    phases = tuple(tuple(names[name] for name in phase) for phase in (of.direct, of.scaled) if phase)
    order = tuple(dim for dim in dims if dim in (*parts.cells, part))
    sinks = Sinks(of.product, part, phases)
    return spec.model_copy(update={"dims": dims}), parts_of(tuple(lines), order, parts.dims), sinks
