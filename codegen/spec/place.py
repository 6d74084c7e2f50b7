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
    found = _MESSAGE.match(message)
    if found is None or found[1] not in loaded:
        return message
    place = place_of(found[2], loaded[found[1]])
    return f"{message[: found.end()]}{place}\n{message[found.end() :]}" if place else message


def place_of(line: str, one: Loaded) -> str:
    """``path:line: field`` of the first name on a line of the kernel that the program gives a value, or else of the
    first that any field declares; "" when there is none. `x_part` and `HAS_X` count as what they begin with."""
    words = [word.lower() for word in _WORD.findall(line)]
    for places in (dict(_of_program(one)), dict(_of_fields(one))):
        for word in words:
            named = [name for name in places if word == name or word.startswith(f"{name}_")]
            if named:
                return places[max(named, key=len)]
    return ""


def _of_program(one: Loaded) -> Iterator[tuple[str, str]]:
    text, source = one.source.data.get("program", ""), one.source
    path = source.place(("program",)).rpartition(":")[0]
    for number, line in enumerate(text.splitlines(), source.text_line(("program",))):
        if found := _LINE.match(line):
            yield found[1].lower(), f"{path}:{number}: program: {line.strip()}"


def _of_fields(one: Loaded) -> Iterator[tuple[str, str]]:
    for where in reversed(_NAMING):  # of two that are called so, the one that comes first counts
        for name in one.source.data.get(where) or ():
            if isinstance(name, str):
                yield name.lower(), f"{one.source.place((where, name))}: {where}.{name}"
