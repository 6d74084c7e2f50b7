"""Bars for figures that are shares: of an error bound, or of the machine's limits."""

from __future__ import annotations

import re

_TABLE = re.compile(r"(?:^\|.*\|$\n?)+", re.MULTILINE)
_CELL = re.compile(r"(?<!\\)\|")  # what ends a cell
_WHOLES = {"worst / bound": re.compile(r"(\S+)()"), "ceiling": re.compile(r"(\d+)(%) of .*")}


def metered(text: str) -> str:
    """The page with a bar below each figure in columns of shares."""
    return _TABLE.sub(lambda match: _table(match[0]), text)


def _table(text: str) -> str:
    head, *rows = text.splitlines()
    names = [name.strip() for name in _CELL.split(head)]
    places = {place: _WHOLES[name] for place, name in enumerate(names) if name in _WHOLES}
    return "".join(f"{line}\n" for line in (head, *(_row(row, places) for row in rows))) if places else text


def _row(row: str, places: dict[int, re.Pattern[str]]) -> str:
    cells = _CELL.split(row)
    for place, pattern in places.items():
        if place < len(cells) and (match := pattern.fullmatch(cells[place].strip())) and (bar := _bar(*match.groups())):
            cells[place] = f" {match[0]} {bar} "
    return "|".join(cells)


def _bar(figure: str, percent: str) -> str:
    """A bar, or nothing for non-numbers such as a table's rule."""
    try:
        part = float(figure) / (100 if percent else 1)
    except ValueError:
        return ""
    return f'<meter value="{part:.3g}" max="1"></meter>'
