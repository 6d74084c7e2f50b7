"""Products whose right factor is made while they run: weights of four bits, each with a zero point and a scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...program import Const, Name
from ...program.tree import Call, Cast, Expr, Query, Read, mapped, reads, walk
from ...text import Name as Identifier
from ..map.op import MapOp
from ..map.passes import Pass
from ..map.spec import MapSpec
from .op import MatmulOp
from .product import Product

_WORDS = ({"i32"}, {"u32"}, {"i32", "u32"})  # of eight codes


def made(spec: MapSpec, cut: tuple[Pass, ...]) -> tuple[tuple[Identifier, Identifier], ...]:
    """Of a program that makes a factor and multiplies it, what kernels read of codes, zero points and scales.

    Empty, if they do not make it while they multiply: it is no `T((code - zero) * scale)`.
    """
    if spec.kinds or spec.precision.subnormals == "flush" or len(cut) != 2 or not isinstance(cut[1].product, Product):
        return ()
    (factor, product), of = cut, cut[1].product
    dims = of.dims
    is_own = [*factor.spec.outputs] == [of.right] and not {*factor.spec.inputs} & {*product.spec.inputs}
    if not is_own or of.span or of.sinks or "batch" in dims or factor.parts.sums or product.parts.reads:
        return ()
    lines = {line.name: line.expr for line in factor.parts.lines}
    match _whole(Name(of.right), lines):
        case Cast(to="T", arg=Call(op="mul", args=(Call(op="sub", args=(code, zero)), scale))):
            parts = _codes(code, dims), zero, scale
        case _:
            return ()
    codes, *others = (_element(part, dims["columns"], factor.spec) for part in parts)
    names = [name for part in (codes, *others) for name, expr in lines.items() if part is not None and expr == part]
    if codes is None or {*factor.spec.inputs[codes.tensor].dtype} not in _WORDS or len(names) != len(parts):
        return ()
    if codes.outside != Const(0) or codes.places[1] != Call("floor_divide", (_index(dims["depth"]), Const(8))):
        return ()
    for read in others:
        indices = {e for e in walk(read.places[1]) if isinstance(e, Query) and e.what == "index"} if read else {None}
        if read is None or factor.spec.inputs[read.tensor].dtype != ("T",) or not indices <= {_index(dims["depth"])}:
            return ()
        if any(name in factor.parts.dims and factor.parts.dims[name] for name in reads(read.places[1])):
            return ()
    return tuple((Identifier(role), Identifier(n)) for role, n in zip(("Codes", "Zero", "Scale"), names, strict=True))


def fused(factor: MapOp, product: MatmulOp, roles: tuple[tuple[Identifier, Identifier], ...]) -> MatmulOp:
    """The pass that does what both do."""
    (held,) = (t for t in factor.tensors if t.role != "in")
    own = [t for t in (*factor.tensors, *product.tensors) if t.name != held.name]
    outputs = [t for t in own if t.role == "out"]
    return replace(
        product,
        tensors=(*(t for t in own if t.role != "out"), held, *outputs),
        axes=_merged(factor.axes, product.axes),
        placed=factor.placed,
        indices=factor.indices,
        sizes=_merged(factor.sizes, product.sizes),
        scalars=_merged(factor.scalars, product.scalars),
        cells=factor.cells,
        kinds={**product.kinds, **factor.kinds},
        made=roles,
        makers=factor.makers,
        loop=0,
    )


def _merged(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _index(dim: str) -> Query:
    return Query("index", dim)


def _whole(expr: Expr, lines: Mapping[str, Expr]) -> Expr:
    """The expression with what names of lines stand for."""
    while isinstance(expr, Name) and expr.id in lines:
        expr = lines[expr.id]
    return expr if isinstance(expr, Read) else mapped(expr, lambda e: _whole(e, lines))


def _codes(expr: Expr, dims: Mapping[str, str]) -> Expr:
    """Of `words >> 4 * (index(depth) % 8) & 15`, the words."""
    shift = Call("mul", (Const(4), Call("remainder", (_index(dims["depth"]), Const(8)))))
    match expr:
        case Call(op="bitwise_and", args=(Call(op="right_shift", args=(words, by)), Const(value=15))) if by == shift:
            return words
    return expr


def _element(expr: Expr, side: str, spec: MapSpec) -> Read | None:
    """A read of an array along the factor's side and a computed place."""
    if isinstance(expr, Read) and len(expr.places) == 2 and expr.places[0] == _index(side):
        return expr if not spec.inputs[expr.tensor].optional else None
    return None
