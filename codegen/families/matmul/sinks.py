"""Reductions of the elements of a product that its kernel makes, beside those elements or instead of them.

A kernel reduces the columns of a part, or the rows of a band, and a pass of a map reduces parts. In the program these
are reductions of their own, over a dim that has an index for each part:

    top = max(z, col)                 part = max(where(index(col) // 64 == index(part), z, -inf), col)
                                      top = max(part, part)

A sum of `exp(z - top)` takes the largest of its own part, and is scaled once the largest of all is known. Nothing else
that rests on a reduction is computed there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from baracuda.runtime.families.matmul.schedules import BAND, PART

from ...program import Const, Expr, Line, Name, Reduce
from ...program.tree import Call, Query, reads, unused, varies
from ...spec.scope import kinds_of
from ..map.program import Parts, parts_of
from ..map.spec import AxesSpec, MapSpec
from .product import Product, oriented

_SIZES = {"columns": PART, "rows": BAND}
_NONE = {"sum": 0.0, "max": -math.inf, "min": math.inf}
_EXACT = ("max", "min")


@dataclass(frozen=True, slots=True)
class Sinks:
    """What a kernel reduces of a product, for each part of the columns, or each band of the rows."""

    of: str  # the product
    part: str  # the dim of parts, or ""
    band: str  # the dim of bands, or ""
    phases: tuple[tuple[str, ...], ...]  # reductions, those of columns that rest on these
    bands: tuple[str, ...]  # reductions of rows, which are of the first phase

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for phase in self.phases for name in phase)


def with_parts(
    spec: MapSpec, parts: Parts, products: Mapping[str, Product]
) -> tuple[MapSpec, Parts, dict[str, Product], tuple[Sinks, ...]]:
    """The program with reductions of parts, the spec with their dims, the products, and which sinks they have."""
    known, found = dict(products), list[Sinks]()
    for name, product in products.items():
        is_plain = product.span is None and not product.weights
        if is_plain and kinds_of(spec, parts.lines).get(name) == "float":
            reduced = _Reduced(spec, parts, name, frozenset(products), oriented(product, _order(spec, parts, product)))
            if reduced.direct:
                known[name] = reduced.of
                spec, parts, sinks = _rewritten(spec, parts, reduced)
                found.append(sinks)
    return spec, parts, known, tuple(found)


def without_part(expr: Expr) -> Expr:
    """A reduction of a part as its kernel computes it: over what it has of the dim."""
    match expr:
        case Reduce(kind=kind, arg=Call(op="where", args=(_, arg, _)), dims=dims):
            return Reduce(kind, arg, dims)
    return expr


def _order(spec: MapSpec, parts: Parts, product: Product) -> tuple[str, ...]:
    """The axes of an output of elements of the product, or all dims."""
    sides = {product.dims["rows"], product.dims["columns"]}
    return next((t.dims for t in spec.outputs.values() if sides <= t.over), tuple(spec.dims))


class _Reduced:
    """The reductions over a side of a product: what is reduced at once, and `exp(z - max(z))`, whose sum waits."""

    def __init__(self, spec: MapSpec, parts: Parts, name: str, products: frozenset[str], of: Product) -> None:
        self.parts, self.product, self.products, self.of = parts, name, products, of
        self.column = of.dims["columns"]
        self.kinds = kinds_of(spec, parts.lines)
        self.optional = {name for name, output in spec.outputs.items() if output.optional}
        self.sides = {of.dims[side]: size for side, size in _SIZES.items() if of.dims[side] not in spec.chunks}
        self.behind = dict[str, frozenset[str]]()  # the reductions that each line rests on, itself included
        for line in parts.lines:
            inner = frozenset[str]().union(*(self.behind.get(name, frozenset()) for name in reads(line.expr)))
            self.behind[line.name] = inner | ({line.name} if line.name in parts.sums else frozenset())
        self.direct = {x.name: side for x in self._sums() if self._behind(x) == {name} and (side := self._side(x))}
        self.scaled = {line.name: top for line in self._sums() if (top := self._top(line))}

    def _sums(self) -> Iterator[Line]:
        """Reductions of elements that a kernel can make as it stores them, all of which are always there."""
        cells = {dim for role, dim in self.of.roles if role != "depth"}
        for line in self.parts.sum_lines:
            is_float = self.kinds.get(line.name) == "float" and line.name not in self.products | self.optional
            is_whole = self.parts.needed([line.name]).isdisjoint(self.parts.reads)
            if not (is_float and is_whole and isinstance(line.expr, Reduce)):
                continue
            if varies(line.expr.arg, self.parts.dims) <= cells:
                yield line

    def _side(self, line: Line) -> str:
        """The dim of which a kernel reduces a part, or "": one of several, where no order changes what that gives."""
        assert isinstance(line.expr, Reduce)
        kind, dims = line.expr.kind, line.expr.dims
        if kind not in _NONE or (len(dims) > 1 and kind not in _EXACT):
            return ""
        return next((dim for dim in self.sides if dim in dims), "")

    def _behind(self, line: Line) -> frozenset[str]:
        return self.behind[line.name] - {line.name}

    def _top(self, line: Line) -> str:
        """The max of `z` of a sum of `exp(z - max(z))`, or ""."""
        match line.expr:
            case Reduce(kind="sum", arg=Call(op="exp", args=(Call(op="sub", args=(value, Name(id=name))),))):
                top = self.parts.line(name)
                while top is not None and (other := _alias(top.expr)):
                    top = self.parts.line(other)
                along = (self.column,)
                if top is not None and top.name in self.direct and line.expr.dims == along:
                    return top.name if top.expr == Reduce("max", value, along) else ""
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
        name = unused(wish, taken)
        taken.add(name)
        return name

    along = dict(of.direct) | dict.fromkeys(of.scaled, of.column)
    part = {side: fresh(f"{side}_part") for side in of.sides if side in along.values()}
    names = {name: fresh(f"{name}_of_part") for name in along}
    lines = list[Line]()
    for line in parts.lines:
        if line.name not in names or not isinstance(line.expr, Reduce):
            lines.append(line)
            continue
        kind, term, own, side = line.expr.kind, line.expr.arg, Name(names[line.name]), along[line.name]
        total: Expr = own
        if line.name in of.scaled and isinstance(term, Call) and isinstance(term.args[0], Call):
            value, top = term.args[0].args
            largest = Name(names[of.scaled[line.name]])
            is_finite = Call("equal", (Call("sub", (largest, largest)), Const(0.0)))
            around = Call("where", (is_finite, largest, Const(0.0)))  # of a part without a number, exp is 0
            term = Call("exp", (Call("sub", (value, around)),))
            total = Call("mul", (own, Call("exp", (Call("sub", (largest, top)),))))
        place = Call("floor_divide", (Query("index", side), Const(of.sides[side])))
        inside = Call("equal", (place, Query("index", part[side])))
        term = Call("where", (inside, term, Const(_NONE[kind])))
        lines.append(Line(own.id, Reduce(kind, term, (side,)), line.number))
        dims = tuple(part[side] if dim == side else dim for dim in line.expr.dims)
        lines.append(Line(line.name, Reduce(kind, total, dims), line.number))
    sizes = {part[side]: AxesSpec(of=f"ceil_div({spec.dims[side].of}, {of.sides[side]})") for side in part}
    dims_of = {**spec.dims, **sizes}
    phases = tuple(tuple(names[name] for name in phase) for phase in (of.direct, of.scaled) if phase)
    bands = tuple(names[name] for name, side in of.direct.items() if side != of.column)
    order = tuple(dim for dim in dims_of if dim in (*parts.cells, *sizes))
    sinks = Sinks(of.product, part.get(of.column, ""), part.get(of.of.dims["rows"], ""), phases, bands)
    return spec.model_copy(update={"dims": dims_of}), parts_of(tuple(lines), order, parts.dims), sinks
