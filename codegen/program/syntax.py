"""What of Python's syntax programs have, and how large they may be."""

from __future__ import annotations

import ast
import re

from .complex import FUNCTIONS as OF_COMPLEX
from .error import ProgramError
from .ops import CASTS, OPS, QUERIES, REDUCTIONS
from .remedies import of_text

INFINITY = "inf"
BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "left_shift",
    ast.RShift: "right_shift",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.And: "logical_and",
    ast.Or: "logical_or",
}
UNARY: dict[type[ast.AST], str] = {ast.USub: "neg", ast.Not: "logical_not", ast.Invert: "invert"}
_INFIX = frozenset(BINARY.values()) | frozenset(UNARY.values())
FUNCTIONS = (*(name for name in OPS if name not in _INFIX), *OF_COMPLEX)
BUILTIN = (*FUNCTIONS, *REDUCTIONS, *QUERIES, *CASTS)
MAX_NODES = 2000  # of one program's text: far above any kernel, far below what makes the parser suffer
MAX_DEPTH = 100  # of its syntax: every reading of a program recurses
MAX_POWER = 16
IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,63}")


def statements_of(text: str) -> list[ast.stmt]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = getattr(error, "lineno", None) or 1
        hint = of_text(text.splitlines()[number - 1] if isinstance(error, SyntaxError) else "")
        raise ProgramError(
            f"not an expression of this language: {getattr(error, 'msg', error)}{hint}", number
        ) from None
    if too_much := excess(tree):
        raise ProgramError(f"the program {too_much}")
    return tree.body


def excess(tree: ast.AST) -> str:
    """What about the size of a syntax tree would make its readers suffer, or ""."""
    nodes, level = 0, [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        nodes += len(level)
        if nodes > MAX_NODES:
            return f"has more than {MAX_NODES} syntax nodes"
        if not level:
            return ""
    return f"nests deeper than {MAX_DEPTH} operators; write it in shorter parts"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"


def excerpt(node: ast.AST) -> str:
    text = ast.unparse(node)
    return repr(text if len(text) <= 60 else text[:57] + "...")
