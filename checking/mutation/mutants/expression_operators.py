"""Operators on Python expressions: of plans' requirements, of specs' formulas and of the runtime's modules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TypeVar

Changed = Iterator[tuple[ast.AST, str]]  # a part of the tree and what is put in its place
Operator = Callable[[ast.AST], Changed]
N = TypeVar("N", bound=ast.AST)

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMMUTE = frozenset({"min", "max", "minimum", "maximum", "isinstance"})
_FUNCTIONS = {"min": "max", "max": "min", "sum": "mean", "mean": "sum", "any": "all", "all": "any"}


def comparison(tree: ast.AST) -> Changed:
    """`<` for `<=`; equal for unequal."""
    for node in _all(tree, ast.Compare):
        for at, sign in enumerate(node.ops):
            if other := _COMPARISONS.get(type(sign)):
                ops = [other() if i == at else o for i, o in enumerate(node.ops)]
                yield node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"


def connective(tree: ast.AST) -> Changed:
    """`and` for `or`, a `not` or an operand dropped."""
    for node in _all(tree, ast.BoolOp):
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
        for dropped in node.values:
            operands = [v for v in node.values if v is not dropped]
            rest = ast.BoolOp(node.op, operands) if len(operands) > 1 else operands[0]
            yield node, f"({ast.unparse(rest)})"
    for inverted in _all(tree, ast.UnaryOp):
        if isinstance(inverted.op, ast.Not):
            yield inverted, f"({ast.unparse(inverted.operand)})"


def constant(tree: ast.AST) -> Changed:
    """The next number or the one before, the other bool."""
    for node in _all(tree, ast.Constant):
        if isinstance(node.value, bool):
            yield node, repr(not node.value)
        elif isinstance(node.value, int | float):
            yield node, repr(node.value + 1)
            yield node, f"({node.value - 1!r})"


def term(tree: ast.AST) -> Changed:
    """One term of a sum dropped."""
    yield from _operands(tree, (ast.Add, ast.Sub))


def factor(tree: ast.AST) -> Changed:
    """One factor of a product dropped."""
    yield from _operands(tree, (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod))


def _operands(tree: ast.AST, kinds: tuple[type[ast.operator], ...]) -> Changed:
    for node in _all(tree, ast.BinOp):
        if isinstance(node.op, kinds):
            yield node, f"({ast.unparse(node.left)})"
            if isinstance(node.op, ast.Add | ast.Mult):
                yield node, f"({ast.unparse(node.right)})"


def exchange(tree: ast.AST) -> Changed:
    """Two neighbouring arguments of a call exchanged, or the sides of a choice."""
    for node in _all(tree, ast.Call):
        if _name(node.func) not in _COMMUTE:
            for at in range(1, len(node.args)):
                args = [*node.args[: at - 1], node.args[at], node.args[at - 1], *node.args[at + 1 :]]
                if ast.unparse(node.args[at]) != ast.unparse(node.args[at - 1]):
                    yield node, ast.unparse(ast.Call(node.func, args, node.keywords))
    for choice in _all(tree, ast.IfExp):
        yield choice, f"({ast.unparse(ast.IfExp(choice.test, choice.orelse, choice.body))})"


def function(tree: ast.AST) -> Changed:
    """Another function; the last part forgotten where it is not a whole one."""
    for node in _all(tree, ast.Call):
        name = _name(node.func)
        if other := _FUNCTIONS.get(name):
            yield node.func, other
        elif name == "ceil_div":
            yield node, " // ".join(f"({ast.unparse(argument)})" for argument in node.args)
        elif name == "round_up":
            yield node, ast.unparse(node.args[0])


EXPRESSION_OPERATORS: dict[str, Operator] = {
    operator.__name__: operator for operator in (comparison, connective, constant, term, factor, exchange, function)
}


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else ""


def _all(tree: ast.AST, kind: type[N]) -> Iterator[N]:
    return (node for node in ast.walk(tree) if isinstance(node, kind))
