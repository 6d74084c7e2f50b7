"""The lines of a forward program, and those that its gradient adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .complex import PARTS
from .kinds import kind_of
from .slopes import NAMED
from .terms import Term
from .tree import Call, Cast, Const, Expr, Line, Name, Reduce, unused, varies, walk


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


@dataclass(slots=True)
class DerivedLines:
    """What is known of the names of both, by which lines are made."""

    forward: Forward
    cotangents: Mapping[str, str]
    wrt: Mapping[str, str]
    saved: frozenset[str]
    dims: dict[str, frozenset[str]] = field(init=False)
    kinds: dict[str, str] = field(init=False)
    values: list[Line] = field(default_factory=list)  # of the forward, with a name for what adjoints read
    names: dict[Expr, str] = field(default_factory=dict)
    balanced: dict[Expr, frozenset[str]] = field(default_factory=dict)  # what sums to 0 over these dims
    made: list[Line] = field(default_factory=list)

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
        is_named = isinstance(expr, Reduce) or (isinstance(expr, Call) and expr.op in NAMED)
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
        return unused(wish, taken)

    def _line(self, name: str, expr: Expr) -> str:
        self.dims[name] = varies(expr, self.dims)
        self.kinds[name] = "float"
        self.made.append(Line(name, expr))
        return name

    def _varies(self, term: Term) -> frozenset[str]:
        return frozenset[str]().union(*(varies(e, self.dims) for e in (*term.top, *term.bottom, *term.when)))

    def _over(self, terms: Iterable[Term]) -> frozenset[str]:
        return frozenset[str]().union(*map(self._varies, terms))

    @property
    def _finite(self) -> frozenset[str]:
        return frozenset(n for n, kind in self.kinds.items() if kind == "int" and not self.dims[n])

    def _zero_at(self, dims: Iterable[str]) -> frozenset[str]:
        """The adjoints that have axes along these dims, beyond which they are 0."""
        return frozenset(n for n in self.cotangents if {*dims} <= {*self.forward.tensors.get(n, ())})

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
