"""Rendering that tracks which template line every line of the result comes from."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from baracuda.runtime.compile.line_map import Place, line_map, placed_lines

_OURS = Path(__file__).resolve().parents[2] / "templates"
_COLUMNS = 120
_BREAKS = [re.compile(mark) for mark in (r" (?=(?:[?:]|&&|\|\|) )|(?<= =) ", "(?<=,) ", " ")]
_FIRST = 0xF0000  # marks are characters for private use, which no text has
_MARK = re.compile(f"[{chr(_FIRST)}-\U0010ffff]")
_INDENT = re.compile(rf"\A(?:\s|{_MARK.pattern})+")


def render_mapped(env: Environment, template: str, **context: Any) -> str:
    """What `template` prints, and the comment that maps its lines, see `baracuda.runtime.compile.line_map`.

    For this the template is rendered again, with marks in its text. There is no comment where its logic sees the marks
    (it compares text that it has captured, say) and prints something else because of them.
    """
    lines = [wrapped(line) for line in env.get_template(template).render(context).split("\n")]
    text = "\n".join(part for parts in lines for part in parts)
    marks = _marks(env)
    try:
        marked = marks.environment.get_template(template).render(context)
    except Exception:  # any that a template may raise; without marks it did not
        return text
    plain = _MARK.sub("", marked).split("\n")
    if not _MARK.search(marked) or [wrapped(line) for line in plain] != lines:
        return text
    places = zip(marks.places_of(marked), lines, strict=False)
    return text + "\n" * (not text.endswith("\n")) + line_map(place for place, parts in places for _ in parts)


def with_headers(text: str, headers: Mapping[str, Sequence[tuple[Place, str]]]) -> str:
    """A file of `render_mapped`, with the lines of `headers` where it includes them in quotes."""
    placed = placed_lines(text) or [(Place("", 0), line) for line in text.splitlines()]
    lines = list[tuple[Place, str]]()
    for place, line in placed:
        name = line.removeprefix('#include "').removesuffix('"') if line.startswith('#include "') else None
        lines += headers.get(name, [(place, line)]) if name else [(place, line)]
    text_of = "".join(f"{line}\n" for _, line in lines)
    return text_of + (line_map(place for place, _ in lines) if placed_lines(text) else "")


def wrapped(line: str) -> list[str]:
    """A line of CUDA text as lines of at most 120 columns; a comment behind code goes before it."""
    if len(line) <= _COLUMNS or line.lstrip().startswith("#"):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    code, _, comment = line.strip().partition("//")
    above = textwrap.wrap(comment.strip(), _COLUMNS - len(indent) - 3, break_long_words=False, break_on_hyphens=False)
    parts = list(_split(code.strip(), _COLUMNS - len(indent) - 4))
    return [*(f"{indent}// {part}" for part in above), *(indent + " " * 4 * (i > 0) + p for i, p in enumerate(parts))]


def _split(code: str, columns: int) -> Iterator[str]:
    """Parts of at most so many columns, before an operator, behind a comma, or where else there is a blank."""
    while len(code) > columns:
        places = [[m.start() for m in mark.finditer(code, 0, columns + 1)] for mark in _BREAKS]
        cut = next((positions[-1] for positions in places if positions and positions[-1] > columns // 3), 0)
        if not cut:
            break
        yield code[:cut]
        code = code[cut + 1 :]
    if code:
        yield code


class _Marks(Extension):
    """Puts a mark before every expression and before the text of every line, but not before blank text, so that filters
    like `indent` and `trim` work as without marks.
    """

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._places: list[Place] = []

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        name = stream.name or ""
        file = f"templates/{name}" if stream.filename and _OURS in Path(stream.filename).resolve().parents else name
        for token in stream:
            if token.type == "data":
                lines = enumerate(token.value.split("\n"), token.lineno)
                marked = (re.sub(r"(?=\S)", self._mark(file, number), line, count=1) for number, line in lines)
                yield Token(token.lineno, "data", "\n".join(marked))
                continue
            if token.type == "variable_begin":
                yield Token(token.lineno, "data", self._mark(file, token.lineno))
            yield token

    def _mark(self, file: str, line: int) -> str:
        self._places.append(Place(file, line))
        return chr(_FIRST + len(self._places) - 1)

    def places_of(self, marked: str) -> list[Place]:
        """The origin of each line: that of its first mark. A blank line has that of the line before it."""
        marks = [self._places[ord(mark) - _FIRST] for mark in _MARK.findall(marked)]
        at, places = Place(marks[0].file, 0), list[Place]()
        index = 0  # of the next mark
        for line in marked.removesuffix("\n").split("\n"):
            content = _INDENT.sub("", line)
            indent = line.removesuffix(content)
            if leading := len(_MARK.findall(indent)):
                at = marks[index + leading - 1]
            elif content:  # the line before broke within the value of an expression
                at = marks[index - 1]
            else:
                at = Place(at.file, at.line + 1)
            places.append(at)
            index += len(_MARK.findall(line))
        return places


@lru_cache(maxsize=1)
def _marks(env: Environment) -> _Marks:
    """An environment that renders like `env`, with marks."""
    marks = env.overlay(extensions=[_Marks]).extensions[_Marks.identifier]
    assert isinstance(marks, _Marks)
    return marks
