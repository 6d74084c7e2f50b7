"""A compiler's log, reduced to the first errors and the lines around the first one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..device import KernelSource
from .line_map import with_line_directives

_SHOWN = 3
_AROUND = 2  # source lines on each side of the first error
_WIDTH = 110
_ERROR = re.compile(
    r"^ ?(?=\S)(?P<where>.*?)[: ]*\b(?:catastrophic error|error|fatal)\b[^:\n]{0,12}: (?P<what>.+)$",
    re.MULTILINE,
)
_PLACE = re.compile(r"(?P<file>.+)\((?P<line>\d+)\)$")
_QUOTED = re.compile(r"""(["'])(.+?)\1""")
_LINE_DIRECTIVE = re.compile(r'[ \t]*#[ \t]*line[ \t]+(\d+)(?:[ \t]+"([^"]+)")?')


def compiler_message(log: str, source: KernelSource, arch: str, include: Path) -> str:
    """The text of a CompileError: a headline, 3 errors as `file:line: what`, 5 source lines, and a count.

    Files below `include` are named relative to it. Where `#line` directives map a line to a template, the error names
    the template; the 5 lines are the generated ones, numbered as without the directives.
    """
    lines = [f"{source.path!r} does not compile for {arch} (kernel {source.symbol!r}):"]
    log = log.replace("\0", "").replace(f"{include}/", "")
    errors = list(_ERROR.finditer(log))
    if not errors:
        return "\n".join([*lines, *log.strip().splitlines()[:_SHOWN]])
    excerpt: list[str] = []
    for number, error in enumerate(errors[:_SHOWN]):
        location, text = error["where"], error["what"].strip()
        place = _PLACE.match(location)
        lines.append(f"{place['file']}:{place['line']}: {text}" if place else f"{location}: {text}")
        if place and not excerpt:
            end = errors[number + 1].start() if number + 1 < len(errors) else len(log)
            excerpt = _excerpt(source, include, place["file"], int(place["line"]), log[error.start() : end])
            lines += excerpt
    if len(errors) > _SHOWN:
        lines.append(f"and {len(errors) - _SHOWN} more")
    return "\n".join(line[: 2 * _WIDTH] for line in lines)


def _excerpt(source: KernelSource, include: Path, file: str, line: int, message: str) -> list[str]:
    """The lines around `file`(`line`); among files of the same name, of the one that `message` is about."""
    named = [name for _, name in _QUOTED.findall(message)]
    places = list(_places(source))
    text = [content for *_, content in places]
    called = [i for i, place in enumerate(places) if place[:2] == (file, line)]
    heading = [f"in {source.path}:"] if file != source.path else []
    if called:
        at = max(called, key=lambda i: (text[i].strip() in message, sum(name in text[i] for name in named)))
    else:
        try:
            text, at, heading = (include / file).read_text().splitlines(), line - 1, []
        except OSError:
            return []
    excerpt = range(max(0, at - _AROUND), min(len(text), at + _AROUND + 1))
    return heading + [f"{'>' if i == at else ' '}{i + 1:5} | {text[i]}"[:_WIDTH] for i in excerpt]


def _places(source: KernelSource) -> Iterator[tuple[str, int, str]]:
    """The compiler's name for each line of `source`, and the line; without the directives."""
    file, number = source.path, 0
    for content in with_line_directives(source.text).removesuffix("\n").split("\n"):
        if directive := _LINE_DIRECTIVE.match(content):
            file, number = directive[2] or file, int(directive[1]) - 1
        else:
            number += 1
            yield file, number, content
