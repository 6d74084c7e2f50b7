"""The types that a template may print; a bare `str` is none of them, so text of a spec is always escaped.

`Code` is printed from a parsed expression, or the generator's own. `Name`, an identifier, is checked when made. `Text`
is prose, escaped for the language it is printed in. The escaping functions are here.
"""

from __future__ import annotations

import html
import json
import re
import textwrap
from collections.abc import Iterable

from markupsafe import Markup

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


def names(found: Iterable[str]) -> tuple[Name, ...]:
    return tuple(map(Name, found))


def wrapped(text: str, width: int, indent: str = "") -> tuple[Text, ...]:
    """`text` in lines of `width` columns, all but the first with `indent`."""
    return tuple(map(Text, textwrap.wrap(text, width, subsequent_indent=indent)))


def python(value: object) -> Code:
    """A Python literal, as ruff would print it."""
    if isinstance(value, str):
        return Code(json.dumps(str(value), ensure_ascii=False))
    if isinstance(value, dict):
        return Code("{" + ", ".join(f"{python(k)}: {python(v)}" for k, v in value.items()) + "}")
    if isinstance(value, tuple):
        items = [python(v) for v in value]
        return Code(f"({', '.join(items)}{',' if len(items) == 1 else ''})")
    if value is None or isinstance(value, bool | int | float):
        return Code(repr(value))
    raise TypeError(f"no literal of Python: {value!r}")


def in_docstring(text: str) -> str:
    '''`text` within `"""` quotes: no escape sequences, and nothing that ends the string.'''
    quoted = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\\", "\\\\"))
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
