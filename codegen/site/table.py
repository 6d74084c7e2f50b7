"""Markdown of rows and words that are no Markdown themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..text import Code, in_markdown

Row = Mapping[str, object]


class Ready(Code):
    """Text that is Markdown already."""


def plain(text: str) -> Ready:
    """Text that reads as it is."""
    return Ready(in_markdown(text))


def code(text: str) -> Ready:
    """Text in a code span, whatever it holds; nothing when it is empty."""
    if not text:
        return Ready("")
    ticks = "`" * (1 + max((len(found) for found in re.findall("`+", text)), default=0))
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return Ready(f"{ticks}{pad}{text}{pad}{ticks}")


def fenced(text: str, language: str, options: str = "") -> Ready:
    """Text in a fence that none of its lines can end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Ready(f"{ticks}{language} {options}".rstrip() + f"\n{text.rstrip()}\n{ticks}\n")


def indented(text: Ready, width: int) -> Ready:
    """The lines after the first, pushed to the right."""
    return Ready(text.rstrip("\n").replace("\n", "\n" + " " * width))


def table(rows: Sequence[Row]) -> Ready:
    """A table of rows with the same keys, the headings; columns that are empty throughout are left out."""
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
