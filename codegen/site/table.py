"""Markdown of rows and words that are no Markdown themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Row = Mapping[str, object]
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


class Ready(str):
    """Text that is Markdown already."""


def plain(text: str) -> Ready:
    """Text that reads as it is."""
    return Ready(_SPECIAL.sub(r"\\\1", text))


def code(text: str) -> Ready:
    """Text in a code span, whatever it holds; nothing when it is empty."""
    if not text:
        return Ready("")
    ticks = "`" * (1 + max((len(found) for found in re.findall("`+", text)), default=0))
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return Ready(f"{ticks}{pad}{text}{pad}{ticks}")


def fenced(text: str, language: str, options: str = "") -> str:
    """Text in a fence that none of its lines can end."""
    longest = max((len(found) for found in re.findall("^`+", text, re.MULTILINE)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language} {options}".rstrip() + f"\n{text.rstrip()}\n{ticks}\n"


def table(rows: Sequence[Row]) -> str:
    """A table of rows with the same keys, the headings; columns that are empty throughout are left out."""
    if not rows:
        return ""
    names = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    numbers = [all(isinstance(row[n], int | float | None) and row[n] is not True for row in rows) for n in names]
    lines = [names, ["---:" if right else "---" for right in numbers]]
    lines += [[_cell(row[name]) for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
