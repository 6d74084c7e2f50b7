"""Cuts a program with matrix products into passes: one for each product, and those of a map for the rest.

What becomes of a product is its pass's epilogue, as far as it needs no reduction of a later pass. A factor that is no
input is handed over in memory: by the product that it is made of, or by a pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from ...program import Line, Name, Reduce
from ...program.tree import Call, Cast, Expr, Query, mapped, terms_of, unused
from ...spec.once import once
from ..map.passes import Cut, Pass, Walk, hoisted
from ..map.program import Parts, parts_of, split
from ..map.spec import MapSpec
from . import chunks
from .product import Product, factors_of_bytes, oriented, pairs_of, products_of, renamed
from .sinks import Sinks, with_parts, without_part
from .spans import by_ends, without_span
from .weights import of_cells, with_weights


@once
def passes(spec: MapSpec, held: str = "held") -> tuple[Pass, ...]:
    """The passes of the program, in order; raises ProgramError for what none compute, or a program without a product.

    Names of arrays that are handed over end in `held`.
    """
    parts = parts_with_factors(spec)
    products = products_of(spec, parts)
    parts = by_ends(parts, spec, products)
    spec, parts, products, sinks = with_parts(spec, parts, products)
    cut = tuple(_Cut(spec, hoisted(parts), held, products, sinks).passes())
    if queries := chunks.asked(cut, next(iter(spec.chunks), "")):
        parts, made = chunks.with_arrays(parts, queries)
        cut = tuple(_Cut(spec, hoisted(parts), held, products, sinks, made).passes())
    return cut


@once
def parts_with_factors(spec: MapSpec) -> Parts:
    """The parts of the program, in which factors of products are names."""
    parts = split(spec)
    lines = with_weights(with_factors(parts.lines, parts.dims), factors_of_bytes(spec))
    return parts_of(lines, parts.cells, parts.dims)


def with_factors(lines: Iterable[Line], taken: Iterable[str]) -> tuple[Line, ...]:
    """The lines with one more for each value that is rounded within a product."""
    found, names = list[Line](), {*taken}

    def named(expr: Expr, line: Line) -> Expr:
        match expr:
            case Reduce(kind="sum", arg=Call(op="mul", args=(a, b)), dims=dims):
                return Reduce("sum", Call("mul", (factor(a, line), factor(b, line))), dims)
            case Reduce(kind="sum", arg=Call(op="where", args=(holds, Call(op="mul", args=(a, b)), other)), dims=dims):
                product = Call("mul", (factor(a, line), factor(b, line)))
                return Reduce("sum", Call("where", (named(holds, line), product, named(other, line))), dims)
            case Reduce(kind="mean", arg=Call(op="mul"), dims=(dim,)):
                return Call("div", (named(replace(expr, kind="sum"), line), Query("size", dim)))
        return mapped(expr, lambda e: named(e, line))

    def factor(expr: Expr, line: Line) -> Expr:
        if not (isinstance(expr, Cast) and expr.to == "T"):
            return named(expr, line)
        name = unused(f"{line.name}_factor", names)
        names.add(name)
        found.append(Line(name, named(expr, line), line.number))
        return Name(name)

    for line in lines:
        expr = named(line.expr, line)
        found.append(Line(line.name, expr, line.number))
    return tuple(found)


class _Cut(Cut):
    """`asked` are lines of what passes cannot ask of the space: arrays that are made first."""

    def __init__(
        self,
        spec: MapSpec,
        parts: Parts,
        held: str,
        products: Mapping[str, Product],
        sinks: tuple[Sinks, ...],
        asked: tuple[str, ...] = (),
    ) -> None:
        super().__init__(spec, parts, held)
        self.products = products
        self.sinks = {of.of: of for of in sinks}
        self.sunk = {name for of in sinks for name in of.names}
        alone = {name: product for name, product in products.items() if name not in self.sinks}
        self.pairs = pairs_of(alone, spec, lambda a, b: any({a, b} <= of for of in self.behind.values()))
        self.chunked = next(iter(spec.chunks), "")
        self.walks += [Walk(parts.dims[name], made=(name,), whole=True) for name in asked]
        self.phases = list[int]()

    def passes(self) -> Iterator[Pass]:
        """Before a loop over chunks, passes set to zero what it adds up."""
        cut = [*super().passes()]
        loops = [0] * len(cut) if not self.chunked else [phase if phase % 2 else 0 for phase in self.phases]
        looped = [replace(of, loop=loop) for of, loop in zip(cut, loops, strict=True)]
        chunks.check(zip(self.walks, looped, strict=True), self.chunked)
        for loop, run in groupby(zip(self.walks, looped, strict=True), lambda pair: pair[1].loop):
            pairs = [chunks.added_up(of) if loop and self._adds_up(walk) else (None, of) for walk, of in run]
            yield from (zero for zero, _ in pairs if zero is not None)
            yield from (of for _, of in pairs)

    def _arrange(self) -> None:
        """Walks of a loop over chunks one after the other, and what reads its sums after it."""
        if not self.chunked:
            return
        ends = [[*walk.sums, *walk.outputs, *self._read_later(place)] for place, walk in enumerate(self.walks)]
        needed = [self.parts.needed(of) for of in ends]
        behind = [
            [other for other, w in enumerate(self.walks[:place]) if {*w.sums, *w.made} & needed[place]]
            for place in range(len(self.walks))
        ]
        phases = chunks.phases_of(self.walks, behind, self.chunked)
        order = sorted(range(len(phases)), key=phases.__getitem__)
        self.walks, self.phases = [self.walks[n] for n in order], [phases[n] for n in order]

    def _adds_up(self, walk: Walk) -> bool:
        """Whether its sums are complete after the last chunk only."""
        return bool(self.chunked) and self.chunked in walk.summed

    def _follows(self, name: str, walk: Walk) -> bool:
        if name in self.sunk:
            return name in walk.sums
        return name in walk.sums if self._adds_up(walk) else super()._follows(name, walk)

    def _ends(self, name: str, walk: Walk) -> bool:
        return super()._ends(name, walk) and (not self._adds_up(walk) or self._is_exact(name))

    def _next(self, pending: list[str]) -> Walk:
        """The next reductions; before a product, a pass that makes a factor which is not in memory yet."""
        walk = super()._next(pending)
        for factor in self._factors(walk):
            if factor in self.lines and not any(self._makes(factor, before) for before in self.walks):
                return Walk(self.parts.dims[factor], made=(factor,))
        walk.sums += [name for of in walk.sums if of in self.sinks for name in self.sinks[of].names]
        return walk

    def _factors(self, walk: Walk) -> tuple[str, ...]:
        product = self._product(walk)
        return product.factors if product else ()

    def _product(self, walk: Walk) -> Product | None:
        """What it multiplies: a product, or a pair in the order of the lines."""
        of = [self.products[line.name] for line in self.parts.sum_lines if line.name in {*walk.sums} & {*self.products}]
        return replace(of[0], second=of[1].right) if len(of) > 1 else next(iter(of), None)

    def _makes(self, factor: str, walk: Walk) -> bool:
        """Whether a walk hands the factor over."""
        return factor in walk.made or self._follows(factor, walk)

    def _alone(self, name: str) -> str:
        return self.pairs.get(name, name) if name in self.products else ""

    def _stores(self, walk: Walk) -> bool:
        return self._product(walk) is None

    def _pass(self, walk: Walk, held: dict[str, str], handed: dict[str, str]) -> Pass:
        of, product = super()._pass(walk, held, handed), self._product(walk)
        if product is None:
            return of
        order = next((self.spec.outputs[name].dims for name in walk.outputs), tuple(self.spec.dims))
        sinks = self.sinks.get(walk.sums[0])
        lines = tuple(replace(x, expr=_terms(x.expr)) if x.name in walk.sums else x for x in of.parts.lines)
        lines = tuple(replace(x, expr=without_part(x.expr)) if x.name in self.sunk else x for x in lines)
        parts = of_cells(replace(of.parts, lines=lines), product.weights)
        product = renamed(product, held)
        product = product if product.second or sinks else oriented(product, order)
        return replace(of, parts=parts, product=replace(product, sinks=sinks))


def _terms(expr: Expr) -> Expr:
    """A product whose terms count without a condition; of one with weights, the sum of these alone."""
    terms = terms_of(expr)
    if isinstance(expr, Reduce) and terms and terms.weight:
        return Reduce("sum", terms.weight, expr.dims)
    return without_span(expr)
