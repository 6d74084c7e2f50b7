"""Operators on Python modules: a condition ignored, a statement dropped, a key without one of its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .expression_operators import Changed, Operator

_REPRESENTATIONS = frozenset({"__repr__", "__str__"})


def for_readers(module: ast.AST) -> frozenset[int]:
    """The ids of all nodes of messages, logs, documentation, types, assertions, decorators and representations."""
    return frozenset(id(node) for part in _for_readers(module) for node in ast.walk(part))


def _for_readers(module: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        match node:
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
                yield node
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
                yield node
            case ast.AnnAssign():
                yield node.annotation
            case ast.FunctionDef() if node.name in _REPRESENTATIONS:
                yield node
            case ast.FunctionDef():
                yield from (*node.decorator_list, node.args, *([node.returns] if node.returns else []))
            case ast.ClassDef():
                yield from (*node.decorator_list, *node.bases, *node.keywords)


def condition(tree: ast.AST) -> Changed:
    """A condition that is always or never true."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
            yield node.test, "True"
            yield node.test, "False"


def key(tree: ast.AST) -> Changed:
    """A key or another tuple of facts without one of its parts."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(), *_], value=ast.Tuple() as parts):
                pass
            case ast.Return(value=ast.Tuple() as parts) | ast.NamedExpr(value=ast.Tuple() as parts):
                pass
            case ast.Subscript(value=ast.Attribute(), slice=ast.Tuple() as parts):
                pass
            case _:
                continue
        for left_out in parts.elts if len(parts.elts) > 1 else ():
            yield parts, f"({ast.unparse(ast.Tuple([e for e in parts.elts if e is not left_out], ast.Load()))})"


def statement(tree: ast.AST) -> Changed:
    """A call, or an assignment to what outlives the function, dropped."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        is_kept = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        if is_call or is_kept:
            yield node, "pass"


def turn(tree: ast.AST) -> Changed:
    """A loop that ends where it goes on, or goes on where it ends."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Continue | ast.Break):
            yield node, "break" if isinstance(node, ast.Continue) else "continue"


MODULE_OPERATORS: dict[str, Operator] = {
    operator.__name__: operator for operator in (condition, key, statement, turn)
}
