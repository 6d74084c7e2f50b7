"""Python that programs may not use, and what to write instead."""

from __future__ import annotations

import ast
import re

from .ops import REDUCTIONS

_ELEMENTWISE = {"max": "maximum", "min": "minimum"}
_OTHERWISE_NAMED = {
    "power": "write pow(x, y), or x ** 3",
    "clip": "write clamp(x, low, high)",
    "float": "an int beside a float becomes one; acc(x) makes one of an int",
    "int": "i64(x) makes one of a float, towards zero; floor, ceil and round give whole floats",
    "len": "size(dim) is a dim's extent",
    "range": "index(dim) is the place along a dim",
    "arange": "index(dim) is the place along a dim",
    "i32": "i64(x) makes an int; outputs may store it as another",
    **dict.fromkeys(("matmul", "mm", "bmm", "dot", "einsum"), "a matrix product is sum(a * b, dim)"),
    **dict.fromkeys(("cumsum", "cumprod", "scan", "sort", "topk"), "cells have no order; that takes a kernel by hand"),
    **dict.fromkeys(("reshape", "transpose", "concat", "roll", "flip", "pad"), "read at places, as in x[i + 1]"),
}
# Operators that take other kinds of operands, and what does the same for these.
OF_OTHERS = {
    ("remainder", "float"): "of floats write modulo(x, y)",
    ("floor_divide", "float"): "of floats write floor(x / y)",
    ("bitwise_and", "bool"): "of bools write `and`",
    ("bitwise_or", "bool"): "of bools write `or`",
    ("invert", "bool"): "of a bool write `not`",
    ("isnan", "int"): "an int is never NaN",
}


def remedy(node: ast.AST) -> str:
    """The end of an error about a syntax node that programs refuse: what to write in its place, or ""."""
    text = _instead(node)
    return text and f"; {text}"


def _instead(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in REDUCTIONS:
            return f"there are no modules and methods; write {name}(x, dim)"
        case ast.Call(func=ast.Attribute(attr=name)):
            return f"there are no modules and methods; write {name}(...)"
        case ast.Call(keywords=[_, *_]):
            return "pass arguments by position, as in sum(x, dim)"
        case ast.Compare(ops=ops):
            return next(filter(None, map(_instead, ops)), "")
        case ast.Constant(value=complex()):
            return "the imaginary unit is complex(0, 1)"
        case ast.BinOp(op=ast.MatMult()):
            return "a matrix product is a sum, as in sum(a * b, dim)"
    return next((text for kinds, text in _SYNTAX if isinstance(node, kinds)), "")


_SYNTAX: tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], str], ...] = (
    (ast.IfExp, "write where(condition, a, b)"),
    (ast.Attribute, "there are no modules and attributes; use plain names"),
    (ast.JoinedStr, "there are no strings; an option is a field of type bool or int"),
    (ast.Constant, "values are numbers and bools"),
    ((ast.Tuple, ast.List, ast.Set, ast.Dict), "there are no collections; give each value a line of its own"),
    (ast.Lambda, "give each value a line of its own"),
    (
        (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
        "reduce over a dim, as in sum(x, dim)",
    ),
    (ast.AugAssign, "no name changes; give the new value a name of its own"),
    (ast.AnnAssign, "values have no annotations; casts as f16(x) round to a type"),
    (ast.NamedExpr, "give the value a line of its own"),
    ((ast.For, ast.While), "reduce over a dim, as in sum(x, dim)"),
    (ast.If, "there are no branches; write where(condition, a, b)"),
    ((ast.Import, ast.ImportFrom), "all functions are there without imports"),
    (ast.FunctionDef, "give each value a line of its own"),
    (ast.Return, "assign to the output's name"),
    (ast.Assign, "one name a line, as in y = x"),
    (ast.Expr, "give the value a name, as in y = x"),
    ((ast.Is, ast.IsNot), "compare with == and !=; present(x) tells whether an optional tensor is there"),
    ((ast.In, ast.NotIn), "compare with == and !=, joined by `or`"),
)


def of_text(line: str) -> str:
    """The end of an error about a line that is no Python."""
    if re.search(r"\[[^\]]*\belse\b", line):
        said = "what a place outside of an array gives is said of the array"
        return f"; {said}, as in `x: {{dims: [row, col], outside: 0}}`"
    return ""


def of_function(name: str) -> str:
    """What to write in place of a function of Python or NumPy that programs lack, or ""."""
    return _OTHERWISE_NAMED.get(name, "")


def of_reduction(name: str, operand: str) -> str:
    """What to write where a reduction of Python's name got a second value instead of a dim, or ""."""
    if name not in _ELEMENTWISE:
        return ""
    return f"{name} reduces over dims; of two values, write {_ELEMENTWISE[name]}(x, {operand})"
