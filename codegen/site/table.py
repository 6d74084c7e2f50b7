"""Markdown tables, and escaping of text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..text import Code, in_markdown

Row = Mapping[str, object]


class Ready(Code):
    """Text that is Markdown already."""


def plain(text: str) -> Ready:
    """Escaped text."""
    return Ready(in_markdown(text))


def code(text: str) -> Ready:
    """A code span of any text; empty for empty text."""
    if not text:
        return Ready("")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return Ready(f"{ticks}{pad}{text}{pad}{ticks}")


def fenced(text: str, language: str, options: str = "") -> Ready:
    """A fenced block that no line of the text can end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Ready(f"{ticks}{language} {options}".rstrip() + f"\n{text.rstrip()}\n{ticks}\n")


def indented(text: Ready, width: int) -> Ready:
    """Indent all lines but the first."""
    return Ready(text.rstrip("\n").replace("\n", "\n" + " " * width))


def table(rows: Sequence[Row]) -> Ready:
    """A table of rows that share their keys as headings, without empty columns."""
    if not rows:
        return Ready("")
    names = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    numbers = [all(isinstance(row[n], int | float | None) and row[n] is not True for row in rows) for n in names]
    lines = [names, ["---:" if right else "---" for right in numbers]]
    lines += [[_cell(row[name]) for name in names] for row in rows]
    return Ready("".join(f"| {' | '.join(line)} |\n" for line in lines))


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else ""
        case float():
            return f"{value:.3g}"
        case Ready():
            return value.replace("\n", " ")
    return plain(str(value)).replace("\n", " ")
