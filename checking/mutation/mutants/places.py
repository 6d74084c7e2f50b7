"""Where things are in a text."""

from __future__ import annotations

import ast
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate


def span(text: str, node: ast.AST) -> tuple[int, int]:
    """Where a node of the syntax tree of `text` begins and ends, in characters."""
    lines, starts = _lines(text)

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    first = offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
    return first, offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def line_of(text: str, at: int) -> tuple[int, str]:
    """The number and the text of the line of the character `at`."""
    lines, starts = _lines(text)
    number = bisect_right(starts, at)
    return number, lines[number - 1].strip()


@lru_cache(maxsize=16)
def _lines(text: str) -> tuple[list[str], list[int]]:
    """The lines, with their ends, and where each begins."""
    lines = text.splitlines(keepends=True)
    return lines, [0, *accumulate(map(len, lines))][: len(lines)]
