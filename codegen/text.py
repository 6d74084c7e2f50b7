"""The types that a template may print; a bare `str` is none of them, so text of a spec is always escaped.

`Code` is printed from a parsed expression, or the generator's own. `Name`, an identifier, is checked when made. `Text`
is prose, escaped for the language it is printed in. The escaping functions are here.
"""

from __future__ import annotations

import html
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import FunctionType
from typing import Any

from markupsafe import Markup

COLUMNS = 120  # of a line of generated Python
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|])")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")  # all but the end of a line
_SPACE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")


class Code(str):
    """Code of the target language, from a printer of parsed expressions or the generator."""

    __slots__ = ()


class Name(Code):
    """An identifier; ValueError for anything else."""

    __slots__ = ()

    def __new__(cls, text: str) -> Name:
        if not _NAME.fullmatch(text):
            raise ValueError(f"{text!r} is no identifier")
        return super().__new__(cls, text)

    def upper(self) -> Name:
        return Name(str.upper(self))

    def lower(self) -> Name:
        return Name(str.lower(self))


class Text(str):
    """Prose, of a spec or of the generator: printed in docstrings and comments only."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a declaration of the runtime that is no class, as Python prints it."""

    name: str
    arguments: tuple[object, ...]
    keywords: Mapping[str, object] = field(default_factory=dict)


def names(texts: Iterable[str]) -> tuple[Name, ...]:
    return tuple(map(Name, texts))


def wrapped(text: str, width: int, indent: str = "") -> tuple[Text, ...]:
    """`text` in lines of `width` columns, all but the first with `indent`."""
    return tuple(map(Text, textwrap.wrap(text, width, subsequent_indent=indent)))


def python(value: object) -> Code:
    """A value as Python: a literal, a declaration of the runtime such as `rt.Extent("n", "x")`, or a table of these."""
    if type(value) is Code:
        return value
    if isinstance(value, str):
        return Code(json.dumps(str(value), ensure_ascii=False))
    if value is None or isinstance(value, bool | int | float):
        return Code(repr(value).replace("inf", "1e999"))  # which is infinite, and a literal
    if isinstance(value, type | FunctionType):
        return Code(f"rt.{value.__name__}")
    opens, items, closes = _items(value)
    between = [f"{key}{python(item)}" for key, item in items]
    return Code(f"{opens}{', '.join(between)}{',' if opens == '(' and len(items) == 1 else ''}{closes}")


_SMALL = 44  # columns of items of which several share a line


def laid_out(value: object, indent: int, used: int = 0, after: int = 0) -> Code:
    """A value as Python, broken over lines where it is too long beside `used` columns, of which so many are `after` it;
    `indent` is the statement's."""
    flat = python(value)
    if used + len(flat) <= COLUMNS:
        return flat
    inner = indent + 4
    if isinstance(value, str):  # in parts, one on each line
        parts = _filled(re.findall(r"[^ .]*[ .]|[^ .]+", value), COLUMNS - max(indent, used) - 2)
        return Code(f"\n{' ' * indent}".join(map(python, parts)))
    opens, items, closes = _items(value)
    width = COLUMNS - inner - 1
    flat_items = [f"{key}{python(item)}" for key, item in items]
    short = type(value) is not tuple or all(len(item) <= _SMALL or item[0] == '"' for item in flat_items)
    column = used - after + len(opens)
    lines = _filled(flat_items, COLUMNS - column - max(1, len(closes) + after), ", ") if short else []
    if len(lines) > 1 and column + max(map(len, lines)) < COLUMNS - len(closes) - after:
        return Code(opens + f",\n{' ' * column}".join(lines) + closes)
    if short and max(map(len, flat_items)) <= width:
        lines = [f"{line}," for line in _filled(flat_items, width, ", ")]
    else:
        lines = [f"{key}{laid_out(item, inner, inner + len(key) + 1, 1)}," for key, item in items]
    return Code("\n".join([opens, *(" " * inner + line for line in lines), " " * indent + closes]))


def packed(head: str, parameters: Iterable[str], tail: str) -> Code:
    """The first line of a function: its parameters on as few lines as possible, below one another."""
    *first, last = [f"{parameter}, " for parameter in parameters]
    lines = _filled([*first, f"{last[:-2]}{tail}"], COLUMNS - len(head))
    return Code(head + f"\n{' ' * len(head)}".join(line.rstrip() for line in lines))


def _filled(items: Iterable[str], width: int, between: str = "") -> list[str]:
    """The items on as few lines as possible."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(between) + len(item) <= width:
            lines[-1] += between + item
        else:
            lines.append(item)
    return lines


def _items(value: object) -> tuple[str, list[tuple[str, object]], str]:
    """The opening, the items with their keywords, and the closing of a value's Python."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return "(", [("", item) for item in value], ")"
    if isinstance(value, Mapping):
        return "rt.table(", [(f"{Name(key)}=", item) for key, item in value.items()], ")"
    if isinstance(value, Call):
        keywords = [(f"{Name(key)}=", item) for key, item in value.keywords.items()]
        return f"rt.{Name(value.name)}(", [*(("", item) for item in value.arguments), *keywords], ")"
    if is_dataclass(value) or isinstance(value, tuple):
        defaults = _defaults_of(value)
        values = [(name, getattr(value, name), default) for name, default in defaults.items()]
        items = [("" if default is MISSING else f"{name}=", v) for name, v, default in values if v != default]
        return f"rt.{type(value).__name__}(", items, ")"
    raise TypeError(f"no Python of a {type(value).__name__}: {value!r:.80}")


def _defaults_of(record: Any) -> dict[str, object]:
    """The fields of a data class or named tuple, each with its default, or MISSING."""
    if isinstance(record, tuple):
        return {name: record._field_defaults.get(name, MISSING) for name in record._fields}  # type: ignore[attr-defined]
    return {field.name: field.default for field in fields(record)}


def in_docstring(text: str) -> str:
    '''`text` within `"""` quotes: no escape sequences, and nothing that ends the string.'''
    quoted = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\\", "\\\\"))
    return re.sub(r'"(?="|$)', r'\"', quoted)


def in_comment(text: str) -> str:
    """`text` behind `//`: one line that the compiler does not continue."""
    line = _SPACE.sub(" ", text).rstrip()
    return f"{line} ." if line.endswith(("\\", "??/")) else line


def in_html(text: str) -> str:
    """`text` between tags, or within quotes of an attribute."""
    return html.escape(text, quote=True)


def in_markdown(text: str) -> str:
    """`text` as literal Markdown."""
    return _MARKDOWN.sub(r"\\\1", in_html(text))


ESCAPE = {"py": in_docstring, "pyi": in_docstring, "cu": in_comment, "md": in_markdown}


def printed(value: object, language: str) -> Markup:
    """What a template of `language` prints for `value`; TypeError for values of other types."""
    if isinstance(value, Text):
        return Markup(ESCAPE[language](value))
    if isinstance(value, Code | Markup) or type(value) in (bool, int):
        return Markup(str(value))
    raise TypeError(f"a template prints a bare {type(value).__name__}, {value!r:.80}; it needs a Name, Code or Text")
