"""Functions of the program language: Python's `def`, read with the same allow list, written out where they are called.

A function's last parameter may be ``*dims``: the dims that its reductions run over. Its lines may assign a name again,
and `for i in range(4):` repeats lines with a constant `i`. The last line returns a value, or several.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .error import ProgramError
from .syntax import BUILTIN, IDENTIFIER, excerpt
from .tree import Call, Const, Expr, Line, Name, Query, varies, walk

MAX_REPEATS = 64  # of one loop

Functions = Mapping[str, "Function"]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A definition: `dims` is the name behind the star, or ""; `parameters` are the others."""

    name: str
    parameters: tuple[str, ...]
    dims: str
    body: tuple[ast.stmt, ...]
    file: str
    known: Functions  # what its body may call

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join([*self.parameters, *([f'*{self.dims}'] if self.dims else [])])})"


class Hoisted:
    """The lines of a program so far, to which calls add lines of their own, and the names that are taken."""

    def __init__(self, names: Mapping[str, frozenset[str]], taken: Iterator[str], most: int) -> None:
        self.names, self.taken, self.most = dict(names), {*names, *taken}, most
        self.lines: list[Line] = []
        self.complex: dict[str, Expr] = {}  # names that stand for two parts
        self.nodes = 0

    def add(self, name: str, expr: Expr, number: int) -> bool:
        """Append a line; false when the program becomes larger than it may be."""
        self.nodes += sum(1 for _ in walk(expr))
        self.names[name] = varies(expr, self.names)
        self.taken.add(name)
        self.lines.append(Line(name, expr, number))
        return self.nodes <= self.most

    def fresh(self, wish: str) -> str:
        """`wish`, or with a number behind it if that is taken."""
        name, number = wish, 1
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        return name


def is_small(expr: Expr) -> bool:
    """Whether reading the expression again costs nothing."""
    match expr:
        case Call(op="complex" | "real" | "imag", args=args):
            return all(map(is_small, args))
    return isinstance(expr, Name | Const | Query)


def uses(function: Function, name: str) -> int:
    """How often the body reads `name`; in a loop, many times."""
    loops = [n for s in function.body for n in ast.walk(s) if isinstance(n, ast.For)]
    nodes = [n for tree in (*function.body, *loops, *loops) for n in ast.walk(tree)]
    return sum(1 for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))


def definition(statement: ast.stmt, known: Functions, file: str) -> Function:
    match statement:
        case ast.FunctionDef(
            name=name,
            args=ast.arguments(posonlyargs=[], args=args, vararg=dims, kwonlyargs=[], kwarg=None, defaults=[]),
            body=body,
            decorator_list=[],
            returns=None,
        ) if not any(a.annotation for a in (*args, *([dims] if dims else []))):
            pass
        case _:
            raise ProgramError(f"expected `def name(a, b, *dims):`, got {excerpt(statement).splitlines()[0]}")
    parameters = tuple(a.arg for a in args)
    for word in (name, *parameters, *([dims.arg] if dims else [])):
        if not IDENTIFIER.fullmatch(word):
            raise ProgramError(f"{word!r} is not a name; use lower-case letters, digits and underscores")
    if name in BUILTIN:
        raise ProgramError(f"{name!r} is part of the language; choose another name")
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # its docstring
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        raise ProgramError(f"the last line of {name!r} must be `return value`")
    return Function(name, parameters, dims.arg if dims else "", tuple(body), file, known)
