"""Where an expression over descriptor fields changes its course: what is compared, and by how much it differs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from .parse import fields_of


@cache
def gaps_of(text: str) -> tuple[str, ...]:
    """Expressions that are 0 where a comparison in a checked condition is between equals.

    A bucket compares with each of its sizes, `min` and `max` with a constant among their operands; a division compares
    the dividend with the divisor, which is where a second tile begins.
    """
    pairs = [pair for node in ast.walk(ast.parse(text.strip(), mode="eval")) for pair in _compared(node)]
    differences = (f"({ast.unparse(a)}) - ({ast.unparse(b)})" for a, b in pairs)
    return tuple(dict.fromkeys(difference for difference in differences if fields_of(difference)))


def _compared(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Compare(left=left, comparators=others):
            yield from pairwise([left, *others])
        case ast.Call(func=ast.Name(id="bucket"), args=[value, *sizes]):
            yield from ((value, size) for size in sizes)
        case ast.Call(func=ast.Name(id="ceil_div" | "round_up"), args=[dividend, divisor]):
            yield dividend, divisor
        case ast.BinOp(left=dividend, op=ast.FloorDiv() | ast.Mod(), right=divisor):
            yield dividend, divisor
        case ast.Call(func=ast.Name(id="min" | "max"), args=operands) if len(operands) > 1:
            constants = [part for part in operands if isinstance(part, ast.Constant)]
            yield from ((part, constant) for part in operands for constant in constants if part is not constant)
