"""Excerpts of pages about one op: sections with its name or marker, and its rows in tables of ops."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .links import parts

_MARK = re.compile(r"^<!-- ops: ([a-z0-9_ ,]+) -->$", re.MULTILINE)
_SECTION = re.compile(r"^## ", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\|$\n?)+", re.MULTILINE)


def excerpt(text: str, op: str) -> str:
    """Markdown of what the page says about `op`; empty if nothing."""
    title, *sections = _SECTION.split("".join(piece for fenced, piece in parts(text) if not fenced))
    passages = [_body(section) for section in sections if op in _ops_of(section)]
    passages += [rows for section in (title, *sections) for rows in _rows(section, op)]
    return "\n".join(passages)


def marked_ops(text: str) -> set[str]:
    """Every op in a marker of the page."""
    return {name for marked in _MARK.findall(text) for name in _names(marked)}


def _ops_of(section: str) -> set[str]:
    """The ops that a section is about: by heading and by marker."""
    heading = section.partition("\n")[0].strip().strip("`")
    return {heading} | marked_ops(section)


def _names(marked: str) -> list[str]:
    return [name.strip() for name in marked.split(",")]


def _body(section: str) -> str:
    return _MARK.sub("", section.partition("\n")[2]).strip() + "\n"


def _rows(section: str, op: str) -> Iterator[str]:
    """The op's rows of tables whose first column is headed `op`, without that column."""
    for match in _TABLE.finditer(section):
        head, rule, *rows = (line.strip().removeprefix("|") for line in match[0].strip().splitlines())
        first, _, names = head.partition("|")
        if first.strip() != "op":
            continue
        own_rows = [rest for cell, _, rest in (row.partition("|") for row in rows) if cell.strip().strip("`") == op]
        if own_rows:
            yield "".join(f"|{line}\n" for line in (names, rule.partition("|")[2], *own_rows))
