"""Products of which adjoints are sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .tree import Call, Const, Expr


@dataclass(frozen=True, slots=True)
class Term:
    """``scale * top / bottom``, products of what they list; 0 unless all hold that it has `when`, whatever the product
    is then: the side of a `where` that is not taken leaves no NaN in a gradient.
    """

    scale: float
    top: tuple[Expr, ...] = ()
    bottom: tuple[Expr, ...] = ()
    when: tuple[Expr, ...] = ()

    def times(self, other: Term) -> Term:
        when = tuple(dict.fromkeys(self.when + other.when))
        return Term(self.scale * other.scale, self.top + other.top, self.bottom + other.bottom, when)

    def over(self, other: Term) -> Term:
        return self.times(Term(1 / other.scale, other.bottom, other.top))


def merged(terms: list[Term]) -> list[Term]:
    """Equal products are one."""
    found: dict[tuple[frozenset[tuple[Expr, int]], ...], Term] = {}
    for term in terms:
        key = tuple(frozenset((e, es.count(e)) for e in es) for es in (term.top, term.bottom, term.when))
        before = found.get(key)
        found[key] = Term(term.scale + before.scale, before.top, before.bottom, before.when) if before else term
    return [term for term in found.values() if term.scale]


def quotient(scale: float, top: list[Expr], bottom: list[Expr]) -> Expr:
    """Divides by one after another: their product could overflow."""
    sign: tuple[Expr, ...] = () if abs(scale) == 1.0 and top else (Const(abs(scale)),)
    expr = product_of([*sign, *top])
    for divisor in bottom:
        expr = Call("div", (expr, divisor))
    return Call("neg", (expr,)) if scale < 0 else expr


def product_of(factors: Iterable[Expr]) -> Expr:
    first, *rest = factors
    for factor in rest:
        first = Call("mul", (first, factor))
    return first


def has_all(factors: tuple[Expr, ...], some: tuple[Expr, ...]) -> bool:
    return all(factors.count(factor) >= some.count(factor) for factor in some)


def without(factors: tuple[Expr, ...], gone: tuple[Expr, ...]) -> tuple[Expr, ...]:
    left = list(factors)
    for factor in gone:
        left.remove(factor)
    return tuple(left)
