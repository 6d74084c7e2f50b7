"""A YAML file as plain data with line numbers, in the core schema of YAML 1.2.

Specs may be untrusted. The data is built from the parser's events, so no object is ever constructed, nothing is shared
or expanded, and depth and number of values are bounded while reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from baracuda.runtime.errors import SpecError

from .yaml_scalar import plain_scalar
from .yaml_text import about_character, display_path, read_text, refuse, report

Loc = tuple[str | int, ...]

MAX_DEPTH = 32
MAX_VALUES = 10_000  # of a file, keys included
MAX_KEY = 200  # characters

# Words of the parser, what they mean to an author, and whether the line is where the construct began.
_SYNTAX: tuple[tuple[str, str, bool], ...] = (
    ("mapping values are not allowed", "unexpected ':'; quote text that contains ': '", False),
    ("could not find expected ':'", "this is no 'key: value'; add ': ' after the key", True),
    ("found unexpected end of stream", "a quote is opened and never closed; add the closing quote", True),
    ("expected ',' or ']'", "the list opened here has no end or lacks a comma; add ',' or ']'", True),
    ("expected ',' or '}'", "the mapping opened here has no end or lacks a comma; add ',' or '}'", True),
    ("expected <block end>", "unexpected indentation; align this with the keys or items around it", False),
    ("expected the node content", "a value or a closing bracket is missing; add it", False),
    ("expected '<document start>'", "text outside of the mapping; give it a key or indent it", False),
    ("expected chomping or indentation", "a block starts below its '|' or '>'; quote other text", False),
    ("expected a comment or a line break", "a block starts below its '|' or '>'; quote other text", False),
    ("cannot start any token", "text cannot start with this character; quote the text", False),
)

_MOST = 512  # texts that are kept
_SHOWN = 100  # characters of a derived line


@dataclass(frozen=True, eq=False)
class YamlSource:
    """`data` holds dict, list, str, int, float, bool and None; a location is a tuple of keys and indices."""

    path: Path
    data: Any
    lines: Mapping[Loc, int] = field(repr=False)  # of the key or list item that introduces each location
    text_lines: Mapping[Loc, int] = field(repr=False)  # where the characters of each text begin
    text: str = field(default="", repr=False)  # of the file

    def line(self, loc: Loc) -> int:
        """Line (from 1) of the key or item at `loc`, or of its nearest ancestor."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def text_line(self, loc: Loc) -> int:
        """Line (from 1) of the first character of the text at `loc`: below the key for a ``|`` block."""
        return self.text_lines.get(loc, self.line(loc))

    def place(self, loc: Loc) -> str:
        """``path:line`` of `loc`, the prefix of messages."""
        return f"{display_path(self.path)}:{self.line(loc)}"

    def error(self, loc: Loc, message: str) -> SpecError:
        """The error `message` ("what is wrong; the fix") about `loc`."""
        return report([f"{self.place(loc)}: {message}"])

    def said_of_line(self, loc: Loc, number: int, message: str) -> str:
        """``path:line: message`` of a line (from 1) of the text at `loc`; with the line, if the file has no such text
        and it follows from others.
        """
        if any(loc[:count] in self.lines for count in range(1, len(loc) + 1)):
            return f"{display_path(self.path)}:{self.text_line(loc) + max(number, 1) - 1}: {message}"
        text = reduce(lambda data, key: data[key], loc, self.data)
        lines = str(text).splitlines()[max(number, 1) - 1 :][:1]
        return f"{self.place(loc)}: {''.join(f'of the derived {line[:_SHOWN]!r}: ' for line in lines)}{message}"


_READ: dict[str, YamlSource] = {}  # by text


def read_yaml(path: Path) -> YamlSource:
    """Read one YAML document; raises `SpecError` (one line, ``path:line: what; the fix``) on errors.

    A text is parsed only once, wherever it is, so the data must not be changed.
    """
    text = read_text(path)
    if (known := _READ.get(text)) is None:
        known = _Builder(path).build(text)
        if len(_READ) >= _MOST:
            _READ.clear()
        _READ[text] = known
    return known if known.path == path else replace(known, path=path)


class _Builder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Loc, int] = {}
        self.text_lines: dict[Loc, int] = {}
        self.events: Iterator[Any] = iter(())
        self.reached = 1  # line of the last event
        self.values = 0

    def build(self, text: str) -> YamlSource:
        self.events = self._parse(text)
        try:
            data = self._document()
        except MarkedYAMLError as error:
            self._syntax(error)
        except SpecError:
            raise
        except (YAMLError, ValueError, OverflowError):  # the parser trusts the numbers in escapes
            refuse(self.path, self.reached, "an escape sequence is out of range; write the character itself")
        return YamlSource(self.path, data, self.lines, self.text_lines, text)

    def _parse(self, text: str) -> Iterator[Any]:
        for event in YAML(typ="safe", pure=True).parse(text):
            self.reached = event.end_mark.line + 1
            yield event

    def _document(self) -> Any:
        next(self.events)  # the start of the stream
        start = next(self.events)
        if not isinstance(start, DocumentStartEvent):
            refuse(self.path, 1, "the file is empty; needs a mapping")
        if start.version or start.tags:
            self._refuse_at(start, "yaml directive; remove the lines that start with '%'")
        first = next(self.events)
        self.lines[()] = first.start_mark.line + 1
        data = self._node(first, ())
        next(self.events)  # the end of the document
        extra = next(self.events)
        if isinstance(extra, DocumentStartEvent):
            self._refuse_at(extra, "second document; needs one document per file")
        return data

    def _node(self, event: Any, loc: Loc) -> Any:
        self._plain_data_only(event)
        match event:
            case ScalarEvent():
                return self._scalar(event, loc)
            case _ if len(loc) >= MAX_DEPTH:
                self._refuse_at(event, f"nested deeper than {MAX_DEPTH} levels; flatten it")
            case SequenceStartEvent():
                return self._sequence(loc)
            case _:
                return self._mapping(loc)

    def _plain_data_only(self, event: Any) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            self._refuse_at(event, f"the file has more than {MAX_VALUES} values; split it")
        if isinstance(event, AliasEvent):
            self._refuse_at(event, f"alias '*{_short(event.anchor)}'; write the value out")
        if event.anchor:
            self._refuse_at(event, f"anchor '&{_short(event.anchor)}'; remove it, values are written out")
        if event.ctag is not None:
            self._refuse_at(event, f"tag {_short(str(event.ctag))!r}; remove it, quotes make a text")

    def _sequence(self, loc: Loc) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            item_loc = (*loc, len(items))
            self.lines[item_loc] = event.start_mark.line + 1
            items.append(self._node(event, item_loc))
        return items

    def _mapping(self, loc: Loc) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self._key(event)
            key_loc = (*loc, key)
            if key in data:
                self._refuse_at(event, f"key {key!r} is already on line {self.lines[key_loc]}; keep one of them")
            self.lines[key_loc] = event.start_mark.line + 1
            data[key] = self._node(next(self.events), key_loc)
        return data

    def _key(self, event: Any) -> str:
        self._plain_data_only(event)
        if isinstance(event, SequenceStartEvent | MappingStartEvent):
            self._refuse_at(event, "this key is a list or a mapping; needs a name")
        if event.value == "<<" and event.style is None:
            self._refuse_at(event, "merge key '<<'; write the keys out")
        if len(event.value) > MAX_KEY:
            self._refuse_at(event, f"key {_short(event.value)!r} is longer than {MAX_KEY} characters; shorten it")
        key = self._scalar(event, None)
        if not isinstance(key, str):
            self._refuse_at(event, f"key {event.value!r} is not a text; quote it")
        return key

    def _scalar(self, event: ScalarEvent, loc: Loc | None) -> Any:
        value = event.value if event.style else self._plain(event)
        if isinstance(value, str):
            bad = next((c for c in value if not (c.isprintable() or c in "\n\t")), None)
            if bad is not None:
                self._refuse_at(event, about_character(bad))
            if loc is not None:
                self.text_lines[loc] = event.start_mark.line + (2 if event.style in ("|", ">") else 1)
        return value

    def _plain(self, event: ScalarEvent) -> Any:
        try:
            return plain_scalar(event.value)
        except OverflowError:
            text = event.value[:40]
            self._refuse_at(event, f"number {text!r} does not fit 64 bits; quote it if it is text")

    def _syntax(self, error: MarkedYAMLError) -> NoReturn:
        problem = " ".join((error.problem or error.context or "malformed").split())
        row = next((row for row in _SYNTAX if row[0] in problem), ("", f"{problem}; needs valid yaml 1.2", False))
        mark = (error.context_mark if row[2] else None) or error.problem_mark or error.context_mark
        refuse(self.path, mark.line + 1 if mark else 1, row[1])

    def _refuse_at(self, event: Any, message: str) -> NoReturn:
        refuse(self.path, event.start_mark.line + 1, message)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
