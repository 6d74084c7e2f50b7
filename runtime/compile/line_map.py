"""Which line of which template each line of a generated file comes from.

A comment of `// @lines` lines ends the generated file. Its words are read one after the other:

    templates/row.cu.jinja:1    the next line is line 1 of this template (a project's own template has no folder)
    5                           the line of the template that is 5 lines behind that of the line before; -5: before it
    1*3                         the same three times; 0*3: the same line three times more
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple
from urllib.parse import quote

_COMMENT = re.compile(r"(?:^// @lines(?: (?:\S+:\d+|-?\d+(?:\*\d+)?))+(?:\n|\Z))+\Z", re.MULTILINE)
# What may go on over the end of a line, and what could look like its beginning.
_UNBROKEN = re.compile(r"""/\*(?s:.*?)\*/|//(?:\\\n|.)*|'\\?.'|"(?:\\(?s:.)|[^"\\\n])*"|\\\n""")


class Place(NamedTuple):
    """A line of a template."""

    file: str
    line: int


def line_map(places: Iterable[Place]) -> str:
    """The comment that says where line 1, 2, ... of a file come from."""
    words, at = [], Place("", 0)
    steps = list[str]()
    for place in places:
        steps.append(f"{place.line - at.line}" if place.file == at.file else f"{quote(place.file)}:{place.line}")
        at = place
    for step, run in groupby(steps):
        count = len(list(run))
        words += [step] * count if ":" in step or count == 1 else [f"{step}*{count}"]
    lines = textwrap.wrap(" ".join(words), 110, break_long_words=False, break_on_hyphens=False)
    return "".join(f"// @lines {line}\n" for line in lines)


@lru_cache(maxsize=64)
def with_line_directives(text: str) -> str:
    """A generated file as a compiler is to see it: with `#line` directives, without the comment.

    Text without the comment, or with another number of lines than the comment speaks of, is returned as it is.
    """
    if not (placed := placed_lines(text)):
        return text
    output, expected, unbroken = [], Place("", 0), _unbroken("".join(f"{line}\n" for _, line in placed))
    for index, (place, line) in enumerate(placed):
        if place != expected and index not in unbroken:
            output.append(f'#line {place.line} "{place.file}"\n')
            expected = place
        output.append(f"{line}\n")
        expected = expected._replace(line=expected.line + 1)
    return "".join(output)


def placed_lines(text: str) -> list[tuple[Place, str]]:
    """The lines of a generated file and where they come from; none without a comment that speaks of all of them."""
    comment = _COMMENT.search(text, max(0, text.find("// @lines")))
    if comment is None:
        return []
    *lines, _ = text[: comment.start()].split("\n")
    places = _places(comment[0])
    return list(zip(places, lines, strict=True)) if len(lines) == len(places) else []


def _places(comment: str) -> list[Place]:
    file, line, places = "", 0, list[Place]()
    for word in comment.replace("// @lines", "").split():
        if ":" in word:
            file, _, number = word.rpartition(":")
            line = int(number)
            places.append(Place(file, line))
        else:
            step, _, count = word.partition("*")
            for _ in range(int(count or 1)):
                line += int(step)
                places.append(Place(file, line))
    return places


def _unbroken(text: str) -> set[int]:
    """Indices of the lines that begin within a comment or continue a line: no directive can stand before them."""
    within = set[int]()
    if "/*" not in text and "\\\n" not in text:
        return within
    for match in _UNBROKEN.finditer(text):
        if ends := match[0].count("\n"):
            first = text.count("\n", 0, match.start())
            within.update(range(first + 1, first + 1 + ends))
    return within
