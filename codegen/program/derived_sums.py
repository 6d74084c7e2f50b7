"""Sums of the terms of adjoints, over the dims that an operand is broadcast along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .derived_places import DerivedPlaces
from .error import ProgramError
from .invert import all_of, is_within, is_zero_outside
from .terms import Term, merged, product_of, quotient, without
from .tree import Call, Cast, Const, Expr, Name, Query, Read, Reduce, varies


@dataclass(slots=True)
class DerivedSums(DerivedPlaces):
    """Lines of adjoints, which are sums of terms. What does not vary along a dim leaves the sum over it."""

    parts: dict[str, list[Term]] = field(default_factory=dict)  # of adjoints that have a name
    rounded: set[str] = field(default_factory=set)  # adjoints that are elements

    def _one(self, terms: list[Term], name: str) -> list[Term]:
        """The terms as one: a line of its own if there are several."""
        if len(terms) == 1:
            return terms
        line = self._line(self._fresh(f"d_{name}"), self._sum(terms))
        self.parts[line] = terms
        return [Term(1.0, (Name(line),), (), tuple(e for e in terms[0].when if all(e in t.when for t in terms)))]

    def _factor(self, terms: list[Term]) -> list[Term]:
        """The terms as one element, to be multiplied: rounded to the element's type, unless it is one."""
        match terms:
            case [Term(scale=1.0, top=(Name(id=name),), bottom=(), when=())] if name in self.rounded:
                return terms
        name = self._line(self._fresh("dz"), Cast("T", self._sum(terms)))
        self.rounded.add(name)
        return [Term(1.0, (Name(name),))]

    def _repeated(self, terms: list[Term], over: frozenset[str]) -> list[Term]:
        """The terms, times the number of cells along the dims of `over` that none of them varies along: each of these
        cells adds the same. Dims that a term varies along are left to be summed over.
        """
        for dim in sorted(over - self._over(terms)):
            terms = [_times_size(term, Query("size", dim)) for term in terms]
        return terms

    def _fitted(self, terms: list[Term], dims: frozenset[str], of: Expr | None = None) -> list[Term]:
        """The terms, summed over the dims along which an operand is broadcast; they are the adjoint of value `of`."""
        terms = [self._picked(term, self._varies(term) - dims) for term in terms]
        over = sorted(self._over(terms) - dims)
        if not over:
            return terms
        if set(over) <= self.forward.pull:
            terms = [part for t in terms for part in self._distributed(t)]
            behind = self._behind([of])[0] & {*self.wrt.values()} if of else ()
            may_be_empty = any(not {*over} <= self.forward.dims[source] for source in behind)
            return merged([self._pulled(t, tuple(over), may_be_empty) for t in terms])
        return [self._summed(self._sum(terms), tuple(over))]

    def _picked(self, term: Term, over: frozenset[str]) -> Term:
        """A term that counts in one cell along a dim of `over`: what it is there, so that nothing is to be summed.

        Matrix products keep their condition, which says what each matrix is multiplied by.
        """
        for condition in term.when if not self.forward.products else ():
            match condition:
                case Call(op="equal", args=(Query(what="index", of=dim), place) | (place, Query(what="index", of=dim))):
                    if dim not in over or dim in varies(place, self.dims):
                        continue
                    rest = self._product(replace(term, when=tuple(e for e in term.when if e != condition)))
                    try:
                        there = self._in_cell(rest, {dim: place}, Read("", (dim,), (place,), Const(0.0)))
                    except ProgramError:
                        continue
                    outside = is_zero_outside(there, self._zero_at((dim,)), self._finite)
                    return Term(1.0, (there,), when=() if outside else is_within(place, dim))
        return term

    def _distributed(self, term: Term) -> Iterator[Term]:
        """A product of sums as a sum of products."""
        for place, factor in enumerate(term.top):
            if isinstance(factor, Name) and factor.id in self.parts:
                rest = Term(term.scale, term.top[:place] + term.top[place + 1 :], term.bottom, term.when)
                for part in self.parts[factor.id]:
                    yield from self._distributed(part.times(rest))
                return
        yield term

    def _pulled(self, term: Term, over: tuple[str, ...], may_be_empty: bool) -> Term:
        factors = (term.top, term.bottom, term.when)
        inside = Term(1.0, *(tuple(e for e in es if varies(e, self.dims) & {*over}) for es in factors))
        balanced = self.balanced.get(product_of(inside.top)) if inside.top else None
        if balanced and balanced <= {*over} and not inside.bottom and not inside.when:
            return Term(0.0)
        top, bottom, when = (tuple(e for e in es if not varies(e, self.dims) & {*over}) for es in factors)
        if may_be_empty and {*over} & self._behind((*top, *bottom))[1]:  # infinite, perhaps, where nothing is summed
            when += tuple(Call("greater", (Query("size", dim), Const(0))) for dim in over)
        return Term(term.scale, top, bottom, when).times(self._summed(self._product(inside), over))

    def _summed(self, expr: Expr, over: tuple[str, ...]) -> Term:
        total = Reduce("sum", expr, over)
        if total not in self.names:
            self.names[total] = self._line(self._fresh("d_sum"), total)
        return Term(1.0, (Name(self.names[total]),))

    def _sum(self, terms: list[Term]) -> Expr:
        result = self._product(terms[0])
        for term in terms[1:]:
            op = "sub" if term.scale < 0 else "add"
            result = Call(op, (result, self._product(Term(abs(term.scale), term.top, term.bottom, term.when))))
        return result

    def _product(self, term: Term) -> Expr:
        """What varies less comes first, together: it is computed once."""
        groups: dict[frozenset[str], tuple[list[Expr], list[Expr]]] = {}
        for place, factors in enumerate((term.top, term.bottom)):
            for factor in factors:
                groups.setdefault(varies(factor, self.dims), ([], []))[place].append(factor)
        most, quotients, scale = self._varies(Term(1.0, term.top, term.bottom)), list[Expr](), term.scale
        for dims, (top, bottom) in sorted(groups.items(), key=lambda item: len(item[0])):
            quotients.append(quotient(scale, top, [product_of(bottom)] if bottom and dims == most else bottom))
            scale = 1.0
        product = product_of(quotients) if quotients else Const(scale)
        match term.when:
            case ():
                return product
            case (Call(op="logical_not", args=(condition,)),):
                return Call("where", (condition, Const(0.0), product))
        return Call("where", (all_of(term.when), product, Const(0.0)))


def _times_size(term: Term, size: Query) -> Term:
    """The sum of `size` equal terms: that of none is 0, whatever the term is then."""
    is_mean = size in term.bottom
    top, bottom = ((), without(term.bottom, (size,))) if is_mean else ((size,), term.bottom)
    return replace(term, top=(*term.top, *top), bottom=bottom, when=(*term.when, Call("greater", (size, Const(0)))))
