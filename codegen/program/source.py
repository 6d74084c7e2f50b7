"""Trees printed as program text."""

from __future__ import annotations

import ast
import math

from .syntax import BINARY, INFINITY, UNARY
from .tree import Call, Cast, Const, Expr, Name, Query, Read, Reduce

_PYTHON = {name: node for node, name in (*BINARY.items(), *UNARY.items())}
_COMPARE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


def to_source(expr: Expr) -> str:
    """Print an expression in the language it was read from; parsing the text gives the tree back."""
    return ast.unparse(ast.fix_missing_locations(_syntax(expr)))


def place_source(expr: Expr) -> str:
    """A place within the brackets of a read, where a dim's name is its index."""
    return ast.unparse(ast.fix_missing_locations(_place(expr)))


def _syntax(expr: Expr) -> ast.expr:
    match expr:
        case Name(id=name):
            return ast.Name(name, ast.Load())
        case Const(value=value) if isinstance(value, float) and math.isinf(value):
            infinity = ast.Name(INFINITY, ast.Load())
            return infinity if value > 0 else ast.UnaryOp(ast.USub(), infinity)
        case Const(value=value):
            return ast.Constant(value)
        case Reduce(kind=kind, arg=arg, dims=dims):
            return _python_call(kind, _syntax(arg), *(ast.Name(d, ast.Load()) for d in dims))
        case Query(what=what, of=of):
            return _python_call(what, ast.Name(of, ast.Load()))
        case Cast(to=to, arg=arg):
            return _python_call(to, _syntax(arg))
        case Read(tensor=tensor, places=places):
            first, *others = map(_place, places)
            index = ast.Tuple([first, *others], ast.Load()) if others else first
            return ast.Subscript(ast.Name(tensor, ast.Load()), index, ast.Load())
        case Call(op=op, args=args):
            return _infix_syntax(op, [_syntax(a) for a in args])
    raise AssertionError(expr)


def _place(expr: Expr) -> ast.expr:
    """The syntax of a place, in which a dim's name is its index."""

    class Short(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            is_index = isinstance(node.func, ast.Name) and node.func.id == "index"
            return node.args[0] if is_index else node

    syntax = Short().visit(_syntax(expr))
    assert isinstance(syntax, ast.expr)
    return syntax


def _infix_syntax(op: str, args: list[ast.expr]) -> ast.expr:
    node = _PYTHON.get(op)
    if node is None:
        return _python_call(op, *args)
    if node in _COMPARE:
        return ast.Compare(args[0], [node()], [args[1]])
    if issubclass(node, ast.boolop):
        return ast.BoolOp(node(), args)
    if issubclass(node, ast.unaryop):
        return ast.UnaryOp(node(), args[0])
    return ast.BinOp(args[0], node(), args[1])  # type: ignore[arg-type]


def _python_call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])
