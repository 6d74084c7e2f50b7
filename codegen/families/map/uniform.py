"""What has one value for all cells: a thread computes it once, before its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...lower.op import Value
from ...program import kind_of
from ...program.kinds import Kinds
from ...program.tree import Call, Const, Expr, Name, mapped, walk
from ...text import Name as Identifier
from .op import Body

# The operations of one instruction, which cost no more than to hold their value.
_CHEAP = frozenset(("add", "sub", "mul", "neg", "abs", "minimum", "maximum", "where", "isnan"))
_CHEAP |= {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}
_CHEAP |= {"logical_and", "logical_or", "logical_not"}
_UNIT = 2.0**-24  # of a number of 24 bits


class Uniforms:
    """The names of such parts, which the kinds of a walk share; whole lines are shared in `one_program` only."""

    def __init__(self, taken: Iterable[str], one_program: bool) -> None:
        self.one_program = one_program
        self._taken, self._names = frozenset(taken), dict[Expr, str]()

    def hoisted(self, body: Body, uniform: Callable[[Expr], Expr | None], kinds: Kinds) -> tuple[Body, dict[str, str]]:
        """`body` with costly parts that are `uniform` among its shared values, and the kinds of these.

        `uniform` gives a part in terms of what is known before all cells, or None.
        """
        found: dict[str, Value] = {}

        def change(expr: Expr) -> Expr:
            expr = _as_whole(expr, uniform)
            if (part := uniform(expr)) is None or (isinstance(expr, Call) and expr.op == "neg"):
                return mapped(expr, change)
            if (kind := kind_of(expr, kinds)) not in _COSTLY or not _COSTLY[kind](part):
                return expr
            name = self._names.setdefault(part, self._fresh())
            found[name] = Value(Identifier(name), kind, part)
            return Name(name)

        lines = [replace(value, expr=change(value.expr)) for value in body.values]
        # Nothing names a line that is such a part as a whole.
        values = tuple(line for line in lines if not (isinstance(line.expr, Name) and line.expr.id in found))
        stores = tuple(replace(store, expr=change(store.expr)) if store.expr else store for store in body.stores)
        sums = tuple(replace(part, arg=change(part.arg)) for part in body.sums)
        shared = (*body.shared, *found.values())
        kinds_of = {name: value.kind for name, value in found.items()}
        return replace(body, values=values, stores=stores, sums=sums, shared=shared), kinds_of

    def _fresh(self) -> str:
        number = len(self._names) + 1
        while f"uniform_{number}" in self._taken:
            number += 1
        return f"uniform_{number}"


def _is_costly(expr: Expr) -> bool:
    return any(isinstance(e, Call) and e.op not in _CHEAP for e in walk(expr))


def _as_whole(expr: Expr, uniform: Callable[[Expr], Expr | None]) -> Expr:
    """Whether a random number of 24 bits is below a uniform one: by its word, which need not become a float."""
    match expr:
        case Call("less", (Call("mul", (Call("right_shift", (word, Const(8))), Const(value=unit))), limit)):
            if isinstance(word, Call) and word.op == "philox" and unit == _UNIT and uniform(limit) is not None:
                units = Call("i64", (Call("ceil", (Call("mul", (limit, Const(1 / _UNIT))),)),))
                return Call("less", (word, Call("mul", (units, Const(256)))))
    return expr


def _is_converted(expr: Expr) -> bool:
    return any(isinstance(e, Call) and e.op == "i64" for e in walk(expr))


_COSTLY = {"float": _is_costly, "int": _is_converted}  # by kind; numbers of indices and sizes are cheap
