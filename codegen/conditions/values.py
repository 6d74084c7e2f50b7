"""Evaluates conditions by walking their trees: the text of a spec is never executed as Python here.

Plan classes made from lowered ops use this. Generated plans compile the same texts: see `runtime.plans.formula`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from baracuda.runtime.plans.formula import FUNCTIONS

Values = Mapping[str, Any]
Meaning = Callable[[Values], Any]

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@lru_cache(maxsize=4096)
def meaning(text: str) -> Meaning:
    """A checked condition as a function of the values of its names."""
    return _meaning(ast.parse(text.strip(), mode="eval").body)


def _meaning(node: ast.expr) -> Meaning:
    match node:
        case ast.Constant(value=value):
            return lambda values: value
        case ast.Name(id=name):
            return operator.itemgetter(name)
        case ast.Tuple(elts=elements):
            parts = [_meaning(part) for part in elements]
            return lambda values: tuple([part(values) for part in parts])
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _applied(FUNCTIONS[name], arguments)
        case ast.Subscript(value=value, slice=index):
            return _applied(operator.getitem, [value, index])
        case ast.UnaryOp(op=op, operand=operand):
            return _applied(_OPERATORS[type(op)], [operand])
        case ast.BinOp(left=left, op=op, right=right):
            return _applied(_OPERATORS[type(op)], [left, right])
    return _branching(node)


def _branching(node: ast.expr) -> Meaning:
    """Nodes that need not evaluate all their parts."""
    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            choice, then, other = _meaning(test), _meaning(body), _meaning(orelse)
            return lambda values: then(values) if choice(values) else other(values)
        case ast.BoolOp(op=op, values=operands):
            return _first([_meaning(part) for part in operands], isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=ops, comparators=others):
            steps = [(_OPERATORS[type(op)], _meaning(part)) for op, part in zip(ops, others, strict=True)]
            return _chain(_meaning(left), steps)
    raise AssertionError(ast.dump(node))


def _applied(function: Callable[..., Any], arguments: list[ast.expr]) -> Meaning:
    match [_meaning(part) for part in arguments]:
        case [a]:
            return lambda values: function(a(values))
        case [a, b]:
            return lambda values: function(a(values), b(values))
        case parts:
            return lambda values: function(*[part(values) for part in parts])


def _first(parts: list[Meaning], stop_at: bool) -> Meaning:
    """The first value whose truth is `stop_at`, or the last one."""

    def value_of(values: Values) -> Any:
        value = None
        for part in parts:
            value = part(values)
            if bool(value) is stop_at:
                break
        return value

    return value_of


def _chain(left: Meaning, steps: list[tuple[Callable[..., Any], Meaning]]) -> Meaning:
    def holds(values: Values) -> Any:
        result, left_value = True, left(values)
        for compare, part in steps:
            right_value = part(values)
            if not (result := compare(left_value, right_value)):
                break
            left_value = right_value
        return result

    return holds
