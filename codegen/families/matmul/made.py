"""Products whose right factor is made while they run: of codes of four bits, and of what groups of these share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...program import Const, Name
from ...program.tree import Call, Cast, Expr, Query, Read, children, mapped, walk
from ...text import Name as Identifier
from ..map.op import Made, MapOp
from ..map.passes import Pass
from ..map.spec import MapSpec
from .op import MatmulOp
from .product import Product

_CODES = {8: {"i32", "u32"}, 2: {"i8", "u8"}}  # how many an element has, and the types of it
_GROUPS = 2  # arrays at most whose elements groups share


def made(spec: MapSpec, cut: tuple[Pass, ...]) -> Made | None:
    """Of a program that makes a factor and multiplies it, what kernels read of codes, and of what groups share.

    None, if they do not make it while they multiply: beside its code an element follows from what its group shares.
    """
    if spec.kinds or spec.precision.subnormals == "flush" or len(cut) != 2 or not isinstance(cut[1].product, Product):
        return None
    (factor, product), of = cut, cut[1].product
    is_own = [*factor.spec.outputs] == [of.right] and not {*factor.spec.inputs} & {*product.spec.inputs}
    if not is_own or of.span or of.sinks or "batch" in of.dims or factor.parts.sums or product.parts.reads:
        return None
    return _Factor(factor, of).made()


@dataclass(frozen=True)
class _Factor:
    """A pass that makes the right factor of a product."""

    of: Pass
    product: Product

    def made(self) -> Made | None:
        exprs = (self.whole, *self.reads.values())
        code = next(filter(None, (self._code(part) for expr in exprs for part in walk(expr))), None)
        if code is None or not isinstance(self.whole, Cast) or self.whole.to != "T":
            return None
        expr, codes, is_high = code
        others = [name for name in self.reads if name != codes]
        groups = [name for name in others if self._is_of_group(self.reads[name])]
        tables = [name for name in others if self._is_of_code(self.reads[name], expr)]
        if len(groups) > _GROUPS or len(groups) + len(tables) < len(others):
            return None
        if not self._rests_on(self.whole, expr, others) or not self._is_of_arrays(self.reads.values()):
            return None
        tensor = Identifier(self.reads[codes].tensor)
        found = Made(Identifier(codes), tensor, groups=tuple(map(Identifier, groups)), high=is_high)
        match self.whole.arg:
            case Call(op="mul", args=(Call(op="sub", args=(of, Name(zero))), Name(scale))) if of == expr:
                names = (Identifier(zero), Identifier(scale))
                if {zero, scale} == {*groups} and not is_high and all(map(self._is_element, names)):
                    return replace(found, groups=names, paired=True)
        return found

    @cached_property
    def reads(self) -> dict[str, Read]:
        """What is read, by names of lines."""
        return {name: self._place_whole(read) for name, read in self.of.parts.reads.items()}

    @cached_property
    def whole(self) -> Expr:
        """An element; names of lines stand for what is read only."""
        return self._whole(Name(self.product.right))

    @cached_property
    def _lines(self) -> Mapping[str, Expr]:
        return {line.name: line.expr for line in self.of.parts.lines if not isinstance(line.expr, Read)}

    def _whole(self, expr: Expr) -> Expr:
        while isinstance(expr, Name) and expr.id in self._lines:
            expr = self._lines[expr.id]
        return mapped(expr, self._whole)

    def _place_whole(self, read: Read) -> Read:
        return replace(read, places=tuple(map(self._whole, read.places)))

    def _index(self, role: str) -> Query:
        return Query("index", self.product.dims[role])

    def _code(self, expr: Expr) -> tuple[Expr, str, bool] | None:
        """If it is a code: itself, what reads its element, and whether that has its first code in the high bits."""
        match expr:
            case Call(op="bitwise_and", args=(Call(op="right_shift", args=(Name(name), by)), Const(value=15))):
                if name not in self.reads:
                    return None
                read, dtypes = self.reads[name], {*self.of.spec.inputs[self.reads[name].tensor].dtype}
                for count, known in _CODES.items():
                    places = (self._index("columns"), Call("floor_divide", (self._index("depth"), Const(count))))
                    if (
                        read.places == places
                        and read.outside == Const(0)
                        and dtypes <= known
                        and by in self._shifts(count)
                    ):
                        return expr, name, by == self._shifts(count)[1]
        return None

    def _shifts(self, count: int) -> tuple[Expr, Expr]:
        """Where an element has a code, if it has the first one in the low bits, and in the high ones."""
        place = Call("remainder", (self._index("depth"), Const(count)))
        return Call("mul", (Const(4), place)), Call("mul", (Const(4), Call("sub", (Const(count - 1), place))))

    def _is_of_group(self, read: Read) -> bool:
        """Whether its place along the depth, the only one that is computed, follows from the index and fields."""
        if len(read.places) != 2 or read.places[0] != self._index("columns"):
            return False
        return self._rests_on(read.places[1], self._index("depth"), ())

    def _is_of_code(self, read: Read, code: Expr) -> bool:
        """Whether it is an element of a table, which all of the depth shares."""
        places = [place for place in read.places if place != self._index("columns")]
        return all(self._rests_on(place, code, ()) for place in places)

    def _rests_on(self, expr: Expr, part: Expr, names: Iterable[str]) -> bool:
        """Whether it is made of this part, of these lines, of fields and of sizes."""
        if expr == part or (isinstance(expr, Name) and expr.id in names):
            return True
        match expr:
            case Name(id=name):
                return name in self.of.spec.descriptor and not self.of.parts.dims.get(name)
            case Const() | Query(what="size"):
                return True
            case Call() | Cast():
                return all(self._rests_on(child, part, names) for child in children(expr))
        return False

    def _is_of_arrays(self, reads: Iterable[Read]) -> bool:
        """Whether these read all that the pass reads, and what is always there."""
        inputs = self.of.spec.inputs
        return {*inputs} == {read.tensor for read in reads} and not any(of.optional for of in inputs.values())

    def _is_element(self, name: str) -> bool:
        return self.of.spec.inputs[self.reads[name].tensor].dtype == ("T",)


def fused(factor: MapOp, product: MatmulOp, of: Made) -> MatmulOp:
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
        made=of,
        makers=factor.makers,
        loop=0,
    )


def _merged(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*first, *second)))
