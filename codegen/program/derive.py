"""The program of a gradient, from its forward's: reverse-mode differentiation, line by line.

An adjoint is a list of terms, each a number times factors, divided by factors. What does not vary along a dim leaves
the sum over it, so a derived program makes as few passes over a row as one written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from .complex import PARTS
from .error import ProgramError
from .invert import Inverse, all_of, indices_in, inverses, is_within, is_zero_outside
from .kinds import kind_of
from .parse import parse_expression
from .source import place_source, to_source
from .tree import Call, Cast, Const, Expr, Line, Name, Query, Read, Reduce, Scope, mapped, place_of, reads, varies, walk

# Of the operands a, b, c, the result r and its adjoint g, for each operand. A row of OPS without rules has no slope.
RULES: dict[str, tuple[str, ...]] = {
    "add": ("g", "g"),
    "sub": ("g", "-g"),
    "mul": ("g * b", "g * a"),
    "div": ("g / b", "-g * a / (b * b)"),
    "neg": ("-g",),
    "fma": ("g * b", "g * a", "g"),
    "abs": ("where(a > 0, g, where(a < 0, -g, a))",),  # at 0 it is 0, and of NaN NaN
    "maximum": ("where(a > b, g, where(a < b, 0.0, 0.5 * g))", "where(b > a, g, where(b < a, 0.0, 0.5 * g))"),
    "minimum": ("where(a < b, g, where(a > b, 0.0, 0.5 * g))", "where(b < a, g, where(b > a, 0.0, 0.5 * g))"),
    "sqrt": ("0.5 * g / r",),
    "rsqrt": ("-0.5 * g * r * r * r",),
    "exp": ("g * r",),
    "exp2": ("0.6931471805599453 * g * r",),
    "expm1": ("g * (r + 1)",),
    "log": ("g / a",),
    "log2": ("1.4426950408889634 * g / a",),
    "log1p": ("g / (1 + a)",),
    "tanh": ("g * (1 - r * r)",),
    "sin": ("g * cos(a)",),
    "cos": ("-g * sin(a)",),
    "tan": ("g * (1 + r * r)",),
    "asin": ("g / sqrt((1 - a) * (1 + a))",),
    "acos": ("-g / sqrt((1 - a) * (1 + a))",),
    "atan": ("g / (1 + a * a)",),
    "sinh": ("g * cosh(a)",),
    "cosh": ("g * sinh(a)",),
    "asinh": ("g / sqrt(1 + a * a)",),
    "acosh": ("g / sqrt((a - 1) * (a + 1))",),
    "atanh": ("g / ((1 - a) * (1 + a))",),
    "cbrt": ("g / (3 * r * r)",),
    "exp10": ("2.302585092994046 * g * r",),
    "log10": ("0.4342944819032518 * g / a",),
    "pow": ("where(b == 0, 0.0, g * b * pow(a, b - 1))", "g * r * log(where(a == 0, 1.0, a))"),
    "atan2": ("g * b / (a * a + b * b)", "-g * a / (a * a + b * b)"),
    "hypot": ("g * a / r", "g * b / r"),
    "fmod": ("g", "-g * trunc(a / b)"),
    "copysign": ("where(a == 0, 0.0, where(a == r, g, -g))", ""),
    "erf": ("1.1283791670955126 * g * exp(-a * a)",),
    "erfc": ("-1.1283791670955126 * g * exp(-a * a)",),
    "sigmoid": ("g * r * (1 - r)",),
}
_NAMES = {name: frozenset[str]() for name in "abcrg"}
_READ = {op: tuple(parse_expression(t, Scope((), _NAMES)) if t else None for t in ts) for op, ts in RULES.items()}
_NAMED = frozenset(op for op, texts in RULES.items() if any("r" in reads(r) for r in _READ[op] if r and texts))
_NO_READER = (
    "{read!r} has no gradient of its own: more than one cell may read an element by {place!r}; read one place only, "
    "by an array of ints that does not vary along {dim}: an input, or an output that `gradient: {{saved: [...]}}` "
    "names; or write it out in a program under `backward`, as a sum of where(index({dim}) == {place}, ..., 0.0) over "
    "the cells; or leave the input out of gradient: wrt"
)
_NOT_HERE = (
    "the gradient of {read!r} needs {value!r} of other cells; make that an output and name it under `backward`, in "
    "`gradient: {{saved: [...]}}`"
)
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

Reader = tuple[str, Inverse]  # a dim of the cells that read an element, and where along it the cell is


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


@dataclass(frozen=True, slots=True)
class Forward:
    """What is differentiated: its lines, the kind of each name, and the dims that each varies along."""

    lines: tuple[Line, ...]
    kinds: Mapping[str, str]
    dims: Mapping[str, frozenset[str]]
    pull: frozenset[str] = frozenset()  # dims out of whose sums goes what does not vary along them
    tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what may be read at places, and its dims
    sizes: Mapping[str, frozenset[Expr]] = field(default_factory=dict)  # what says the size of each dim
    products: frozenset[Expr] = frozenset()  # matrix products, whose factors are elements: their adjoints are, too
    elements: frozenset[str] = frozenset()  # the adjoints that come in as elements


def derive(
    forward: Forward, cotangents: Mapping[str, str], wrt: Mapping[str, str], saved: Iterable[str]
) -> tuple[Line, ...]:
    """Lines for each of `wrt` (gradient -> input), from `cotangents` (adjoint -> output) and the values in `saved`.

    `forward.dims` has the dims of the adjoints, too.
    """
    return _Derivation(forward, cotangents, wrt, frozenset(saved)).lines()


@dataclass(slots=True)
class _Derivation:
    forward: Forward
    cotangents: Mapping[str, str]
    wrt: Mapping[str, str]
    saved: frozenset[str]
    dims: dict[str, frozenset[str]] = field(init=False)
    kinds: dict[str, str] = field(init=False)
    values: list[Line] = field(default_factory=list)  # of the forward, with a name for what adjoints read
    names: dict[Expr, str] = field(default_factory=dict)
    adjoints: dict[Expr, list[Term]] = field(default_factory=dict)  # of names, and of the parts of complex ones
    parts: dict[str, list[Term]] = field(default_factory=dict)  # of adjoints that have a name
    pairs: dict[Expr, Term] = field(default_factory=dict)  # names of elements times or over a value of their row
    balanced: dict[Expr, frozenset[str]] = field(default_factory=dict)  # what sums to 0 over these dims
    made: list[Line] = field(default_factory=list)
    active: set[str] = field(default_factory=set)
    rounded: set[str] = field(default_factory=set)  # adjoints that are elements
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
                    if terms := _merged(self.adjoints.get(part, [])):
                        self._push(value, terms if self._adds_product(value) else self._one(terms, line.name), part)
        ends = [self._end(name, source) for name, source in self.wrt.items()]
        return _needed([*self.values, *self.made], ends, self.saved)

    def _parts(self, expr: Expr) -> tuple[Expr, ...]:
        """The real values that `expr` stands for: the gradient of a complex number has theirs as its parts."""
        if isinstance(expr, Call) and expr.op == "complex":
            return expr.args
        is_complex = kind_of(expr, self.kinds) == "complex"
        return tuple(Call(part, (expr,)) for part in PARTS) if is_complex else (expr,)

    def _value(self, name: str, expr: Expr) -> None:
        self.dims[name] = varies(expr, self.dims)
        self.kinds[name] = kind_of(expr, self.kinds)
        self.values.append(Line(name, expr))
        self.names.setdefault(expr, name)
        if dims := self._centred_along(expr):
            self.balanced[Name(name)] = dims

    def _centred_along(self, expr: Expr) -> frozenset[str]:
        """The dims along which a value less its mean sums to 0."""
        match expr:
            case Call(op="sub", args=(whole, Name(id=mean))):
                line = next((line.expr for line in self.values if line.name == mean), None)
                if isinstance(line, Reduce) and line.kind == "mean" and line.arg == whole:
                    return frozenset(line.dims)
        return frozenset()

    def _named(self, expr: Expr, *, root: bool = False) -> Expr:
        """`expr` with a name for every reduction, and for every function whose slope is known from its result."""
        match expr:
            case Call(op="div", args=(Const(value=1), Call(op="sqrt", args=args))):
                return self._named(Call("rsqrt", args), root=root)
            case Call(op=op, args=args):
                expr = Call(op, tuple(self._named(a) for a in args))
            case Reduce(kind=kind, arg=arg, dims=dims):
                expr = Reduce(kind, self._named(arg), dims)
            case Cast(to=to, arg=arg):
                expr = Cast(to, self._named(arg))
        is_named = isinstance(expr, Reduce) or (isinstance(expr, Call) and expr.op in _NAMED)
        is_named = is_named or bool(self._centred_along(expr))
        return self._hoisted(expr) if is_named and not root else expr

    def _hoisted(self, expr: Expr) -> Expr:
        """The name of a value of the forward."""
        if expr not in self.names:
            op = expr.kind if isinstance(expr, Reduce) else expr.op if isinstance(expr, Call) else "value"
            self._value(self._fresh(f"the_{op}"), expr)
        return Name(self.names[expr])

    def _fresh(self, wish: str) -> str:
        taken = {*self.dims, *self.cotangents, *self.wrt}
        return next(name for name in _numbered(wish) if name not in taken)

    def _one(self, terms: list[Term], name: str) -> list[Term]:
        """The terms as one: a line of its own if there are several."""
        if len(terms) == 1:
            return terms
        line = self._line(self._fresh(f"d_{name}"), self._sum(terms))
        self.parts[line] = terms
        return [Term(1.0, (Name(line),), (), tuple(e for e in terms[0].when if all(e in t.when for t in terms)))]

    def _adds_product(self, expr: Expr) -> bool:
        """Whether it is a matrix product, or a sum of one and other values."""
        match expr:
            case Name(id=name):
                return any(line.name == name and line.expr in self.forward.products for line in self.values)
            case Call(op="add" | "sub", args=args):
                return any(map(self._adds_product, args))
        return expr in self.forward.products

    def _factor(self, terms: list[Term]) -> list[Term]:
        """The terms as one element, to be multiplied: rounded to the element's type, unless it is one."""
        match terms:
            case [Term(scale=1.0, top=(Name(id=name),), bottom=(), when=())] if name in self.rounded:
                return terms
        name = self._line(self._fresh("dz"), Cast("T", self._sum(terms)))
        self.rounded.add(name)
        return [Term(1.0, (Name(name),))]

    def _line(self, name: str, expr: Expr) -> str:
        self.dims[name] = varies(expr, self.dims)
        self.kinds[name] = "float"
        self.made.append(Line(name, expr))
        return name

    def _push(self, expr: Expr, terms: list[Term], result: Expr) -> None:
        """Add what the adjoint `terms` of `expr` makes of the adjoints of the names it reads."""
        if not reads(expr) & self.active or kind_of(expr, self.kinds) != "float":
            return
        is_rounded = not isinstance(expr, Name) and self._adds_product(expr)
        if isinstance(expr, Name | Reduce) or _is_part(expr) or self.forward.pull or is_rounded:
            terms = self._fitted(terms, varies(expr, self.dims), expr)
        terms = self._factor(terms) if is_rounded else terms
        terms = [self._paired(term) for term in terms]
        match expr:
            case Name() | Call(op="real" | "imag", args=(Name(),)):
                self.adjoints.setdefault(expr, []).extend(terms)
            case Cast(arg=arg):
                self._push(arg, terms, arg)
            case Read(tensor=tensor):
                self.adjoints.setdefault(Name(tensor), []).extend(self._of_read(expr, terms))
            case Call(op="real" | "imag" as part, args=(Read(tensor=tensor) as read,)):
                self.adjoints.setdefault(Call(part, (Name(tensor),)), []).extend(self._of_read(read, terms))
            case Reduce(kind="sum", arg=arg):
                self._push(arg, terms, arg)
            case Reduce(kind="mean", arg=arg, dims=dims):
                sizes = Term(1.0, (), tuple(Query("size", dim) for dim in dims))
                self._push(arg, [t.times(sizes) for t in terms], arg)
            case Reduce(kind="var", arg=arg, dims=dims):
                sizes = Term(1.0, (), tuple(Query("size", dim) for dim in dims))
                away = self._hoisted(Call("sub", (arg, self._hoisted(Reduce("mean", arg, dims)))))
                self._push(arg, [t.times(Term(2.0, (away,))).times(sizes) for t in terms], arg)
            case Reduce(kind="prod", arg=arg, dims=dims):
                others = self._other_factors(arg, dims, result)
                self._push(arg, [t.times(Term(1.0, (others,))) for t in terms], arg)
            case Reduce(arg=arg):
                self._push(arg, self._of_extreme(terms, expr, result), arg)
            case Call(op="where", args=(condition, *sides)):
                for side, holds in zip(sides, (condition, Call("logical_not", (condition,))), strict=True):
                    self._push(side, [t.times(Term(1.0, when=(holds,))) for t in terms], side)
            case Call(op=op, args=args):
                for operand, rule in zip(args, _READ.get(op, (None,) * len(args)), strict=True):
                    if rule is not None and reads(operand) & self.active:
                        self._push(operand, self._ruled(rule, args, result, terms), operand)

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
                raise ProgramError(_NO_READER.format(read=to_source(read), place=place_source(by_dim[dim]), dim=dim))
            else:
                asked.append(dim)
        cells = {found[0][0] for found in readers}
        if clash := {*read.computed} & (varies(read, self.dims) | over) - ({*cells, *fixed} - {*asked}):
            raise ProgramError(_CLASH.format(read=to_source(read), tensor=read.tensor, dim=min(clash)))
        terms = [self._of_reader(read, terms, some, here) for some in product(*readers)]
        for dim in asked:
            terms = self._asked(read, dim, terms)
        return self._fitted(terms, self.dims[read.tensor])

    def _rests_on_arrays(self, place: Expr) -> bool:
        return any(self.dims[name] for name in self._behind([place])[0] if name in self.forward.tensors)

    def _written_out(self, place: Expr) -> Expr:
        """A place without the names of lines that say where it is along dims, if no array does."""
        if self._rests_on_arrays(place):
            return place
        lines = {line.name: line.expr for line in self.values if self.dims[line.name]}

        def written(expr: Expr) -> Expr:
            return written(lines[expr.id]) if isinstance(expr, Name) and expr.id in lines else mapped(expr, written)

        return written(place)

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

    def _keyed(self, read: Read, fixed: Iterable[str]) -> str | None:
        """The dim along which an array of ints has the place, if no other is computed: many cells may read one."""
        match [(d, p) for d, p in zip(read.dims, read.places, strict=True) if d in read.computed and d not in fixed]:
            case [(dim, Name(id=keys))] if keys in self.forward.tensors and dim not in self.dims[keys]:
                return dim
        return None

    def _is_fixed(self, place: Expr) -> bool:
        """Whether all cells read the same place."""
        return not indices_in(place) and not varies(place, self.dims)

    def _over(self, terms: Iterable[Term]) -> frozenset[str]:
        return frozenset[str]().union(*map(self._varies, terms))

    def _readers_of(self, read: Read, dim: str, first: frozenset[str]) -> list[Reader]:
        """A dim along which few cells read each place along `dim`, and which; of several dims, one in `first`, then one
        of the values that are differentiated.
        """
        by_dim = {d: self._written_out(p) for d, p in zip(read.dims, read.places, strict=True)}
        place = by_dim.pop(dim)
        own = indices_in(place) - frozenset[str]().union(*map(indices_in, by_dim.values()))
        outer = frozenset[str]().union(*(self.dims[name] for name in self.cotangents))
        for cell in sorted(own, key=lambda d: (d not in first, d not in outer, d)):
            sizes = self.forward.sizes.get(cell, frozenset()) | {Query("size", cell)}
            found = inverses(place, cell, Query("index", dim), sizes)
            if found is not None and not any(cell in self.dims[name] for name in reads(place)):
                return [(cell, of) for of in found]
        return []

    def _in_cell(self, expr: Expr, places: Mapping[str, Expr], read: Read) -> Expr:
        """`expr` in the cell whose index along each dim of `places` is the one there."""
        if varies(expr, self.dims).isdisjoint(places):
            return expr
        match expr:
            case Query(of=of):
                return places[of]
            case Name(id=name) if name in self.forward.tensors:
                dims = self.forward.tensors[name]
                return Read(name, dims, tuple(places.get(d, Query("index", d)) for d in dims), Const(0.0))
            case Name(id=name) if line := next((x for x in (*self.values, *self.made) if x.name == name), None):
                return self._in_cell(line.expr, places, read)
            case Read(tensor=tensor, dims=dims, places=own, outside=outside):
                return Read(tensor, dims, tuple(self._in_cell(p, places, read) for p in own), outside)
            case Call(op=op, args=args):
                return Call(op, tuple(self._in_cell(a, places, read) for a in args))
            case Cast(to=to, arg=arg):
                return Cast(to, self._in_cell(arg, places, read))
            case Reduce(kind=kind, arg=arg, dims=dims) if {*dims}.isdisjoint(self._dims_of(places)):
                return Reduce(kind, self._in_cell(arg, places, read), dims)
        raise ProgramError(_NOT_HERE.format(read=to_source(read), value=to_source(expr)))

    def _dims_of(self, places: Mapping[str, Expr]) -> frozenset[str]:
        return frozenset(places).union(*(varies(place, self.dims) for place in places.values()))

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
            while _has(term.top, pair.top) and _has(term.bottom, pair.bottom):
                top, bottom = _without(term.top, pair.top), _without(term.bottom, pair.bottom)
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
            return _merged([self._pulled(t, tuple(over), may_be_empty) for t in terms])
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

    def _zero_at(self, dims: Iterable[str]) -> frozenset[str]:
        """The adjoints that have axes along these dims, beyond which they are 0."""
        return frozenset(n for n in self.cotangents if {*dims} <= {*self.forward.tensors.get(n, ())})

    @property
    def _finite(self) -> frozenset[str]:
        return frozenset(n for n, kind in self.kinds.items() if kind == "int" and not self.dims[n])

    def _varies(self, term: Term) -> frozenset[str]:
        return frozenset[str]().union(*(varies(e, self.dims) for e in (*term.top, *term.bottom, *term.when)))

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
        is_balanced = self.balanced.get(_all(inside.top), frozenset()) >= {*over} if inside.top else False
        if is_balanced and not inside.bottom and not inside.when:
            return Term(0.0)
        top, bottom, when = (tuple(e for e in es if not varies(e, self.dims) & {*over}) for es in factors)
        if may_be_empty and {*over} & self._behind((*top, *bottom))[1]:  # infinite, perhaps, where nothing is summed
            when += tuple(Call("greater", (Query("size", dim), Const(0))) for dim in over)
        return Term(term.scale, top, bottom, when).times(self._summed(self._product(inside), over))

    def _behind(self, exprs: Iterable[Expr]) -> tuple[frozenset[str], frozenset[str]]:
        """The names that values rest on, and the dims that lines behind them reduce over."""
        lines = {line.name: line.expr for line in (*self.values, *self.made)}
        names, dims, pending = set[str](), set[str](), [*exprs]
        while pending:
            for part in walk(pending.pop()):
                dims |= {*part.dims} if isinstance(part, Reduce) else set()
                if isinstance(part, Name) and part.id not in names:
                    names.add(part.id)
                    pending += [lines[part.id]] if part.id in lines else []
        return frozenset(names), frozenset(dims)

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
            quotients.append(_quotient(scale, top, [_all(bottom)] if bottom and dims == most else bottom))
            scale = 1.0
        product = _all(quotients) if quotients else Const(scale)
        match term.when:
            case ():
                return product
            case (Call(op="logical_not", args=(condition,)),):
                return Call("where", (condition, Const(0.0), product))
        return Call("where", (all_of(term.when), product, Const(0.0)))

    def _end(self, name: str, source: str) -> Line:
        parts = [self._end_of(part, source) for part in self._parts(Name(source))]
        return Line(name, parts[0] if len(parts) == 1 else Call("complex", tuple(parts)))

    def _end_of(self, part: Expr, source: str) -> Expr:
        terms = [self._paired(t) for t in _merged(self.adjoints.get(part, []))]
        terms = self._fitted(terms, self.forward.dims[source], Name(source))
        expr: Expr = self._sum(terms) if terms else Const(0.0)
        made = {line.name: line.expr for line in self.made}
        while isinstance(expr, Name) and expr.id in made:
            expr = made[expr.id]
        return expr


def _is_part(expr: Expr) -> bool:
    """Whether it is a part of a complex element."""
    return isinstance(expr, Call) and expr.op in PARTS


def _quotient(scale: float, top: list[Expr], bottom: list[Expr]) -> Expr:
    """Divides by one after another: their product could overflow."""
    sign: tuple[Expr, ...] = () if abs(scale) == 1.0 and top else (Const(abs(scale)),)
    expr = _all([*sign, *top])
    for divisor in bottom:
        expr = Call("div", (expr, divisor))
    return Call("neg", (expr,)) if scale < 0 else expr


def _all(factors: Iterable[Expr]) -> Expr:
    first, *rest = factors
    for factor in rest:
        first = Call("mul", (first, factor))
    return first


def _has(factors: tuple[Expr, ...], some: tuple[Expr, ...]) -> bool:
    return all(factors.count(factor) >= some.count(factor) for factor in some)


def _without(factors: tuple[Expr, ...], gone: tuple[Expr, ...]) -> tuple[Expr, ...]:
    left = list(factors)
    for factor in gone:
        left.remove(factor)
    return tuple(left)


def _merged(terms: list[Term]) -> list[Term]:
    """Equal products are one."""
    found: dict[tuple[frozenset[tuple[Expr, int]], ...], Term] = {}
    for term in terms:
        key = tuple(frozenset((e, es.count(e)) for e in es) for es in (term.top, term.bottom, term.when))
        before = found.get(key)
        found[key] = Term(term.scale + before.scale, before.top, before.bottom, before.when) if before else term
    return [term for term in found.values() if term.scale]


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


def _numbered(wish: str) -> Iterator[str]:
    yield wish
    number = 2
    while True:
        yield f"{wish}_{number}"
        number += 1
