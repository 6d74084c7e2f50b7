"""Expressions over a descriptor's fields: Python's syntax behind an allow list."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from baracuda.runtime.plans.formula import FUNCTIONS, NO_VALUE
from baracuda.runtime.values import near, short_repr

from ..program.syntax import excess
from .values import meaning

_NODES = (
    ast.Expression,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Tuple,
    ast.Subscript,
    ast.Compare,
    ast.IfExp,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Call,
    ast.cmpop,
    ast.boolop,
    ast.Not,
    ast.USub,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
)


class ConditionError(ValueError):
    """An invalid expression over descriptor fields."""


def read_condition(text: str, fields: Collection[str]) -> str:
    """`text` in normal form; raises ConditionError for anything outside the allow list."""
    return ast.unparse(parsed(text, fields))


def on_one_line(text: str) -> str:
    """A checked condition as written in the spec, on one line and without comments."""
    line, tree = " ".join(text.split()), _tree(text)
    same = "#" not in line and ast.dump(_tree(line)) == ast.dump(tree)
    return line if same else ast.unparse(tree)


def parsed(text: str, fields: Collection[str]) -> ast.Expression:
    """The syntax tree of `text`; raises ConditionError for anything outside the allow list."""
    tree = _tree(text)
    if too_much := excess(tree):
        raise ConditionError(f"the expression {too_much}")
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                _require_name(name, FUNCTIONS, "function")
            case ast.Name(id=name) if node not in called:
                _require_name(name, fields, "field")
            case ast.Constant(value=int() as value) if not -(2**63) <= value < 2**63:
                raise ConditionError("a literal must fit in 64 bits")
            case ast.Constant(value=float() as value) if not math.isfinite(value):
                raise ConditionError("a literal must be finite")
            case ast.Constant(value=bool() | int() | float()):
                pass
            case ast.BinOp(op=ast.Pow()):
                raise ConditionError(f"{_excerpt(node)} is not allowed here; multiply, or make the power a field")
            case ast.BinOp(op=ast.Div()):
                raise ConditionError(f"{_excerpt(node)} is not allowed here; // gives whole numbers")
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) if not isinstance(op, _NODES):
                raise ConditionError(f"{_excerpt(node)} is not allowed here")
            case ast.Constant() | ast.Call():
                raise ConditionError(f"{_excerpt(node)} is not allowed here")
            case _ if not isinstance(node, _NODES):
                raise ConditionError(f"{_excerpt(node)} is not allowed here")
    return tree


def _tree(text: str) -> ast.Expression:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python only warns of, as of `1if`, is none of this language
            return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = getattr(error, "msg", str(error))
        # A flow list cuts `min(a, b) > 0` at its comma.
        is_cut = "never closed" in said or "unmatched" in said
        hint = "; in [...] put a condition with a comma in quotes" if is_cut else ""
        raise ConditionError(f"not an expression: {said}{hint}") from None


def _excerpt(node: ast.AST) -> str:
    text = ast.unparse(node)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def fields_of(text: str) -> tuple[str, ...]:
    """The fields that a checked condition reads, in order of first appearance."""
    tree = ast.parse(text, mode="eval")
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return tuple(dict.fromkeys(name for name in names if name not in FUNCTIONS))


def evaluate_condition(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a checked condition on a descriptor's values; ConditionError if it has none, as of n // 0."""
    try:
        return meaning(text)(values)
    except NO_VALUE as error:  # the runtime's own for axes are ValueErrors
        raise ConditionError(f"has no value for {_values_text(text, values)}: {error}") from None


def _values_text(text: str, values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={short_repr(values[name])}" for name in fields_of(text)) or "any problem"


def _require_name(name: str, allowed: Collection[str], kind: str) -> None:
    if name not in allowed:
        meant = near(name[:64], allowed)
        hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(allowed)}"
        raise ConditionError(f"unknown {kind} {name[:64]!r}; {hint}")
