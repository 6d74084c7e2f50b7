"""Maps a compiler error in a kernel to the field of the spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .load import Loaded

# A CompileError that is about a line of a generated kernel: the op, the compiler's first words, that line.
_MESSAGE = re.compile(r"\A'\S*?(\w+)\.cu' does not compile .*\n.*\n(?=in \S+\.cu:\n(?:.*\n)*?> *\d+ \| (.*))")
_WORD = re.compile(r"(?<![\w.])(?:args\.)?([A-Za-z_]\w*)")  # members count where they are arguments
_LINE = re.compile(r" *(\w+) *=")
_NAMING = ("inputs", "outputs", "descriptor", "dims", "settings", "workspace", "terms", "kernels")  # names by key


def with_field(message: str, loaded: Mapping[str, Loaded]) -> str:
    """The text of a CompileError, with the spec's line below the template's, if a name on the line leads there."""
    match = _MESSAGE.match(message)
    if match is None or match[1] not in loaded:
        return message
    place = place_of(match[2], loaded[match[1]])
    return f"{message[: match.end()]}{place}\n{message[match.end() :]}" if place else message


def place_of(line: str, entry: Loaded) -> str:
    """``path:line: field`` of the first name on a line of the kernel that the program gives a value, or else of the
    first that any field declares; "" when there is none. `x_part` and `HAS_X` count as what they begin with."""
    words = [word.lower() for word in _WORD.findall(line)]
    for places in (dict(_of_program(entry)), dict(_of_fields(entry))):
        for word in words:
            named = [name for name in places if word == name or word.startswith(f"{name}_")]
            if named:
                return places[max(named, key=len)]
    return ""


def _of_program(entry: Loaded) -> Iterator[tuple[str, str]]:
    text, source = entry.source.data.get("program", ""), entry.source
    path = source.place(("program",)).rpartition(":")[0]
    for number, line in enumerate(text.splitlines(), source.text_line(("program",))):
        if match := _LINE.match(line):
            yield match[1].lower(), f"{path}:{number}: program: {line.strip()}"


def _of_fields(entry: Loaded) -> Iterator[tuple[str, str]]:
    for section in reversed(_NAMING):  # of two that are called so, the one that comes first counts
        for name in entry.source.data.get(section) or ():
            if isinstance(name, str):
                yield name.lower(), f"{entry.source.place((section, name))}: {section}.{name}"
