"""The program of a gradient, from its forward's: reverse-mode differentiation, line by line.

An adjoint is a list of terms, each a number times factors, divided by factors. What does not vary along a dim leaves
the sum over it, so a derived program makes as few passes over a row as one written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from .complex import PARTS
from .derived_lines import Forward
from .derived_places import NO_READER, Reader
from .derived_sums import DerivedSums
from .error import ProgramError
from .invert import all_of, is_within, is_zero_outside
from .kinds import kind_of
from .slopes import READ
from .source import place_source, to_source
from .terms import Term, has_all, merged, without
from .tree import Call, Cast, Const, Expr, Line, Name, Query, Read, Reduce, place_of, reads, varies, walk

_NO_WINNER = (
    "the gradient of {read!r} needs to know which of its windows' extremes it is; save their places as an output, "
    "`at = {place}` of an int dtype, and name it: `gradient: {{saved: [at]}}`"
)
_CLASH = (
    "{read!r} has no gradient of its own: the cells that read vary along {dim}, too, which is an axis of {tensor!r} "
    "that is read at computed places; give that axis a dim of its own"
)
_MANY = 16  # cells that read an element, of which each has a term
_LARGE = 3  # nodes of a factor that gets a line of its own


def derive(
    forward: Forward, cotangents: Mapping[str, str], wrt: Mapping[str, str], saved: Iterable[str]
) -> tuple[Line, ...]:
    """Lines for each of `wrt` (gradient -> input), from `cotangents` (adjoint -> output) and the values in `saved`.

    `forward.dims` has the dims of the adjoints, too.
    """
    return _Derivation(forward, cotangents, wrt, frozenset(saved)).lines()


@dataclass(slots=True)
class _Derivation(DerivedSums):
    adjoints: dict[Expr, list[Term]] = field(default_factory=dict)  # of names, and of the parts of complex ones
    pairs: dict[Expr, Term] = field(default_factory=dict)  # names of elements times or over a value of their row
    active: set[str] = field(default_factory=set)
    ties: dict[str, Reduce] = field(default_factory=dict)  # how many extremes are equal, and the place of the first

    def lines(self) -> tuple[Line, ...]:
        self.dims, self.kinds = dict(self.forward.dims), dict(self.forward.kinds)
        for name, output in self.cotangents.items():
            self.kinds[name] = "complex" if self.kinds[output] == "complex" else "float"
            for of, part in zip(self._parts(Name(output)), self._parts(Name(name)), strict=True):
                self.adjoints[of] = [Term(1.0, (part,))]
        for line in self.forward.lines:
            self._value(line.name, self._named(line.expr, root=True))
        self.active |= {*self.wrt.values()}
        self.rounded |= self.forward.elements
        for line in self.values:
            if reads(line.expr) & self.active:
                self.active.add(line.name)
        for line in reversed(list(self.values)):
            if line.name in self.active:
                for part, value in zip(self._parts(Name(line.name)), self._parts(line.expr), strict=True):
                    if terms := merged(self.adjoints.get(part, [])):
                        terms = terms if self._adds_product(value) else self._one(terms, line.name)
                        self._push(value, terms, part, self.dims[line.name])
        ends = [self._end(name, source) for name, source in self.wrt.items()]
        return _needed([*self.values, *self.made], ends, self.saved)

    def _adds_product(self, expr: Expr) -> bool:
        """Whether it is a matrix product, or a sum of one and other values."""
        match expr:
            case Name(id=name):
                return any(line.name == name and line.expr in self.forward.products for line in self.values)
            case Call(op="add" | "sub", args=args):
                return any(map(self._adds_product, args))
        return expr in self.forward.products

    def _push(self, expr: Expr, terms: list[Term], result: Expr, cells: frozenset[str]) -> None:
        """Add what the adjoint `terms` of `expr`, read in each of the `cells`, makes of those of the names it reads."""
        if not reads(expr) & self.active or kind_of(expr, self.kinds) != "float":
            return
        along = varies(expr, self.dims)
        terms = self._repeated(terms, cells - along)
        within = cells & along
        is_rounded = not isinstance(expr, Name) and self._adds_product(expr)
        if isinstance(expr, Name | Reduce) or _is_part(expr) or self.forward.pull or is_rounded:
            terms = self._fitted(terms, along, expr)
        terms = self._factor(terms) if is_rounded else terms
        terms = [self._paired(term) for term in terms]
        match expr:
            case Name() | Call(op="real" | "imag", args=(Name(),)):
                self.adjoints.setdefault(expr, []).extend(terms)
            case Cast(arg=arg):
                self._push(arg, terms, arg, within)
            case Read(tensor=tensor):
                self.adjoints.setdefault(Name(tensor), []).extend(self._of_read(expr, terms))
            case Call(op="real" | "imag" as part, args=(Read(tensor=tensor) as read,)):
                self.adjoints.setdefault(Call(part, (Name(tensor),)), []).extend(self._of_read(read, terms))
            case Reduce(kind="sum", arg=arg, dims=dims):
                self._push(arg, terms, arg, within | {*dims})
            case Reduce(kind="mean", arg=arg, dims=dims):
                sizes = Term(1.0, (), tuple(Query("size", dim) for dim in dims))
                self._push(arg, [t.times(sizes) for t in terms], arg, within | {*dims})
            case Reduce(kind="var", arg=arg, dims=dims):
                sizes = Term(1.0, (), tuple(Query("size", dim) for dim in dims))
                away = self._hoisted(Call("sub", (arg, self._hoisted(Reduce("mean", arg, dims)))))
                self._push(arg, [t.times(Term(2.0, (away,))).times(sizes) for t in terms], arg, within | {*dims})
            case Reduce(kind="prod", arg=arg, dims=dims):
                others = self._other_factors(arg, dims, result)
                self._push(arg, [t.times(Term(1.0, (others,))) for t in terms], arg, within | {*dims})
            case Reduce(arg=arg, dims=dims):
                self._push(arg, self._of_extreme(terms, expr, result), arg, within | {*dims})
            case Call(op="where", args=(condition, *sides)):
                for side, holds in zip(sides, (condition, Call("logical_not", (condition,))), strict=True):
                    self._push(side, [t.times(Term(1.0, when=(holds,))) for t in terms], side, within)
            case Call(op=op, args=args):
                for operand, rule in zip(args, READ.get(op, (None,) * len(args)), strict=True):
                    if rule is not None and reads(operand) & self.active:
                        self._push(operand, self._ruled(rule, args, result, terms), operand, within)

    def _of_read(self, read: Read, terms: list[Term]) -> list[Term]:
        """The adjoints of a tensor's elements: those of the cells that read each of them."""
        by_dim = dict(zip(read.dims, read.places, strict=True))
        fixed = [dim for dim in read.computed if self._is_fixed(by_dim[dim])]
        here = tuple(Call("equal", (Query("index", dim), by_dim[dim])) for dim in fixed)
        if len(fixed) == len(read.computed):
            all_cells = self._fitted(terms, self.dims[read.tensor] - {*fixed})
            return [t.times(Term(1.0, when=here)) for t in all_cells]
        if (dim := self._keyed(read, fixed)) is not None:
            terms = self._fitted(terms, (self.dims[read.tensor] | varies(by_dim[dim], self.dims)) - {*fixed, dim})
            keys = Call("equal", (by_dim[dim], Query("index", dim)))
            only = [Term(1.0, (self._sum(terms),))] if len(terms) > 1 else terms
            return self._fitted([t.times(Term(1.0, when=(*here, keys))) for t in only], self.dims[read.tensor])
        terms = self._fitted(terms, self._over(terms) - {*fixed})
        readers, asked, over = list[list[Reader]](), list[str](), self._over(terms)
        for dim in (dim for dim in read.computed if dim not in fixed):
            found = self._readers_of(read, dim, over)
            if len(found) * math.prod(map(len, readers)) in range(1, _MANY + 1):
                readers.append(found)
            elif self._rests_on_arrays(by_dim[dim]):
                raise ProgramError(NO_READER.format(read=to_source(read), place=place_source(by_dim[dim]), dim=dim))
            else:
                asked.append(dim)
        cells = {found[0][0] for found in readers}
        if clash := {*read.computed} & (varies(read, self.dims) | over) - ({*cells, *fixed} - {*asked}):
            raise ProgramError(_CLASH.format(read=to_source(read), tensor=read.tensor, dim=min(clash)))
        terms = [self._of_reader(read, terms, some, here) for some in product(*readers)]
        for dim in asked:
            terms = self._asked(read, dim, terms)
        return self._fitted(terms, self.dims[read.tensor])

    def _of_reader(self, read: Read, terms: list[Term], readers: Iterable[Reader], here: tuple[Expr, ...]) -> Term:
        """The adjoints of the cell that reads each element, the one of `readers` along each dim."""
        places, whole = dict[str, Expr](), list[Expr](here)
        for cell, (place, conditions) in readers:
            places[cell] = place
            whole += conditions
        try:
            adjoint = self._in_cell(self._sum(terms), places, read)
        except ProgramError:
            if extreme := next((self.ties[n] for n in self.ties if n in self._behind([self._sum(terms)])[0]), None):
                raise ProgramError(_NO_WINNER.format(read=to_source(read), place=to_source(extreme))) from None
            raise
        if not is_zero_outside(adjoint, self._zero_at(places), self._finite):
            whole = [condition for cell, place in places.items() for condition in is_within(place, cell)] + whole
        return Term(1.0, (Call("where", (all_of(whole), adjoint, Const(0.0))) if whole else adjoint,))

    def _asked(self, read: Read, dim: str, terms: list[Term]) -> list[Term]:
        """The adjoints of the cells whose place along `dim` is an element's, each of which is asked for its own."""
        by_dim = dict(zip(read.dims, read.places, strict=True))
        place = by_dim.pop(dim)
        mine = Term(1.0, when=(Call("equal", (place, Query("index", dim))),))
        only = [Term(1.0, (self._sum(terms),))] if len(terms) > 1 else terms
        shared = frozenset[str]().union(self.dims[read.tensor], *(varies(p, self.dims) for p in by_dim.values()))
        kept = (self._over(only) | self.dims[read.tensor]) - (varies(place, self.dims) - shared)
        return self._fitted([t.times(mine) for t in only], kept)

    def _of_extreme(self, terms: list[Term], extreme: Reduce, result: Expr) -> list[Term]:
        """Equal extremes share the adjoint, but where the place of one of them is saved."""
        kind, arg, dims = f"arg{extreme.kind}", extreme.arg, extreme.dims
        for line in self.values:
            match line.expr:
                case Reduce(kind=of_kind, arg=of, dims=over) if line.name in self.saved:
                    if (of_kind, of, {*over}) == (kind, arg, {*dims}) and (place := place_of(line.expr)):
                        return [t.times(Term(1.0, when=(Call("equal", (place, Name(line.name))),))) for t in terms]
        chosen = Call("equal", (arg, result))
        count = self._hoisted(Reduce("sum", Call("where", (chosen, Const(1.0), Const(0.0))), dims))
        if isinstance(count, Name):
            self.ties[count.id] = Reduce(kind, arg, dims)
        return [Term(1.0, (Call("where", (chosen, self._product(t), Const(0.0))),), (count,)) for t in terms]

    def _other_factors(self, arg: Expr, dims: tuple[str, ...], result: Expr) -> Expr:
        """The product of the other factors: the quotient, but of a factor by which nothing can be divided.

        Such a factor is 0, infinite or NaN. Of the only one, it is the product of all that are not; else the product
        itself, with the sign without the factor.
        """
        zero, one = Const(0.0), Const(1.0)
        odd = Call("logical_or", (Call("equal", (arg, zero)), Call("not_equal", (Call("sub", (arg, arg)), zero))))
        rest = self._hoisted(Reduce("prod", Call("where", (odd, one, arg)), dims))
        count = self._hoisted(Reduce("sum", Call("where", (odd, one, zero)), dims))
        signed = Call("where", (Call("less", (arg, zero)), Call("neg", (result,)), result))
        alone = Call("where", (Call("equal", (count, one)), rest, signed))
        return self._hoisted(Call("where", (odd, alone, Call("div", (result, arg)))))

    def _ruled(self, rule: Expr, args: tuple[Expr, ...], result: Expr, terms: list[Term]) -> list[Term]:
        values = {name: self._factors(a) for name, a in zip("abc", args, strict=False) if name in reads(rule)}
        values["r"] = Term(1.0, (result,))
        return [self._term(rule, {**values, "g": term}) for term in terms]

    def _factors(self, expr: Expr) -> Term:
        """A value of the forward as a product; what is large and no product has a name."""
        match expr:
            case Const(value=value) if value is not True and value is not False:
                return Term(float(value))
            case Call(op="neg", args=(arg,)):
                return Term(-1.0).times(self._factors(arg))
            case Call(op="mul" | "div" as op, args=(a, b)):
                left, right = self._factors(a), self._factors(b)
                product = left.times(right) if op == "mul" else left.over(right)
                if not self._scales(a, b):
                    return product
                self.pairs[name := self._hoisted(expr)] = product
                for factor, other in ((a, b), (b, a)):
                    dims = self.balanced.get(factor)
                    if op == "mul" and dims and dims.isdisjoint(varies(other, self.dims)):
                        self.balanced[name] = dims
        is_large = sum(1 for _ in walk(expr)) > _LARGE and kind_of(expr, self.kinds) == "float"
        return Term(1.0, (self._hoisted(expr) if is_large else expr,))

    def _scales(self, a: Expr, b: Expr) -> bool:
        """Whether each element of one is multiplied by a value that many share: a quotient that is in no danger."""
        one, other = varies(a, self.dims), varies(b, self.dims)
        return one != other and bool(one) and bool(other) and bool({*one, *other} & self.forward.pull)

    def _paired(self, term: Term) -> Term:
        """The term with names for the products that have one: their squares could overflow."""
        for name, pair in self.pairs.items():
            while has_all(term.top, pair.top) and has_all(term.bottom, pair.bottom):
                top, bottom = without(term.top, pair.top), without(term.bottom, pair.bottom)
                term = Term(term.scale / pair.scale, (*top, name), bottom, term.when)
        return term

    def _term(self, rule: Expr, values: Mapping[str, Term]) -> Term:
        """A rule, read with these operands: products stay apart, anything else is one factor."""
        match rule:
            case Name(id=name):
                return values[name]
            case Const(value=value):
                return Term(float(value))
            case Call(op="neg", args=(arg,)):
                return Term(-1.0).times(self._term(arg, values))
            case Call(op="mul", args=(a, b)):
                return self._term(a, values).times(self._term(b, values))
            case Call(op="div", args=(a, b)):
                return self._term(a, values).over(self._term(b, values))
        return Term(1.0, (self._filled(rule, values),))

    def _filled(self, rule: Expr, values: Mapping[str, Term]) -> Expr:
        match rule:
            case Name() | Call(op="neg" | "mul"):
                return self._product(self._term(rule, values))
            case Call(op=op, args=args):
                return Call(op, tuple(self._filled(a, values) for a in args))
        return rule

    def _end(self, name: str, source: str) -> Line:
        parts = [self._end_of(part, source) for part in self._parts(Name(source))]
        return Line(name, parts[0] if len(parts) == 1 else Call("complex", tuple(parts)))

    def _end_of(self, part: Expr, source: str) -> Expr:
        terms = [self._paired(t) for t in merged(self.adjoints.get(part, []))]
        terms = self._fitted(terms, self.forward.dims[source], Name(source))
        expr: Expr = self._sum(terms) if terms else Const(0.0)
        made = {line.name: line.expr for line in self.made}
        while isinstance(expr, Name) and expr.id in made:
            expr = made[expr.id]
        return expr


def _is_part(expr: Expr) -> bool:
    """Whether it is a part of a complex element."""
    return isinstance(expr, Call) and expr.op in PARTS


def _needed(lines: list[Line], ends: list[Line], given: frozenset[str]) -> tuple[Line, ...]:
    """The lines that `ends` rest on, in order, and those."""
    needed, pending = set[str](), [name for line in ends for name in reads(line.expr)]
    by_name = {line.name: line for line in lines if line.name not in given}
    while pending:
        name = pending.pop()
        if name in by_name and name not in needed:
            needed.add(name)
            pending += reads(by_name[name].expr)
    return (*(line for line in lines if line.name in needed), *ends)
