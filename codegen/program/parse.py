"""Program text to tree and back: Python's syntax, Python's parser, and a white list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from .complex import element, is_complex, parts_of, whole
from .error import ProgramError
from .functions import Hoisted
from .reader import Reader, add, assignment, check_name, named
from .syntax import MAX_NODES, statements_of
from .tree import Call, Expr, Line, Name, Scope, varies


@lru_cache(maxsize=512)  # the checks of a spec ask for its lines many times
def parse(text: str, scope: Scope) -> tuple[Line, ...]:
    """Return the lines of `text`, each of which may read the scope's values and the names above it.

    A call of a function puts the lines of its body above the line that calls it.
    """
    statements = statements_of(text)
    hoisted = Hoisted(scope.values, _assigned(statements), MAX_NODES)
    for statement in statements:
        try:
            names, values = assignment(statement, Reader(scope, hoisted, number=statement.lineno))
            for name, value in zip(names, values, strict=True):
                check_name(name, hoisted.names, scope)
                _assign(hoisted, name, value, statement.lineno, scope)
        except ProgramError as error:
            raise ProgramError(str(error), statement.lineno) from None
    return tuple(hoisted.lines)


def _assigned(statements: list[ast.stmt]) -> Iterator[str]:
    return (n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _assign(hoisted: Hoisted, name: str, value: Expr, number: int, scope: Scope) -> None:
    """Add a line; of a complex value, lines of its parts, and one of the whole if that is an output."""
    kind = scope.kinds.get(name)
    if kind == "complex" and not is_complex(value):
        value = Call("complex", parts_of(value))
    if not is_complex(value):
        return add(hoisted, name, value, number)
    if kind not in (None, "complex"):
        text = f"{name!r} is complex, and its dtype takes real numbers only"
        raise ProgramError(f"{text}; take abs(x), real(x) or imag(x)")
    if isinstance(value, Call) and whole(value) is value:
        value = named(hoisted, value, name, number)
    if kind == "complex":
        add(hoisted, name, whole(value), number)
        value = element(Name(name))
    hoisted.complex[name] = value
    hoisted.names.setdefault(name, varies(value, hoisted.names))


def parse_expression(text: str, scope: Scope) -> Expr:
    """Return the tree of one expression."""
    match statements_of(text):
        case [ast.Expr(value=value)]:
            return Reader(scope, Hoisted(scope.values, iter(()), MAX_NODES)).expression(value)
    raise ProgramError(f"expected one expression, got {text!r}")
