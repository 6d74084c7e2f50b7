"""NVRTC's log, reduced to what a person acts on: the first errors, and the lines around the first one."""

from __future__ import annotations

import re
from pathlib import Path

from .device import KernelSource

_SHOWN = 3
_AROUND = 2  # source lines on each side of the first error
_WIDTH = 110
_ERROR = re.compile(
    r"^ ?(?=\S)(?P<where>.*?)[: ]*\b(?:catastrophic error|error|fatal)\b[^:\n]{0,12}: (?P<what>.+)$",
    re.MULTILINE,
)
_PLACE = re.compile(r"(?P<file>.+)\((?P<line>\d+)\)$")
_LINE_DIRECTIVE = re.compile(r'[ \t]*#[ \t]*line[ \t]+(\d+)(?:[ \t]+"([^"]+)")?')


def compiler_message(log: str, source: KernelSource, arch: str, include: Path) -> str:
    """The text of a CompileError: a headline, 3 errors as `file:line: what`, 5 source lines, and a count.

    Files below `include` are named relative to it, and `#line` directives in the source are honoured.
    """
    lines = [f"{source.path!r} does not compile for {arch} (kernel {source.symbol!r}):"]
    errors = [
        (m["where"], m["what"].strip())
        for m in _ERROR.finditer(log.replace("\0", "").replace(f"{include}/", ""))
    ]
    if not errors:
        return "\n".join([*lines, *log.strip().splitlines()[:_SHOWN]])
    excerpt: list[str] = []
    for where, what in errors[:_SHOWN]:
        place = _PLACE.match(where)
        lines.append(f"{place['file']}:{place['line']}: {what}" if place else f"{where}: {what}")
        if place and not excerpt:
            excerpt = _excerpt(source, include, place["file"], int(place["line"]))
            lines += excerpt
    if len(errors) > _SHOWN:
        lines.append(f"and {len(errors) - _SHOWN} more")
    return "\n".join(line[: 2 * _WIDTH] for line in lines)


def _excerpt(source: KernelSource, include: Path, file: str, line: int) -> list[str]:
    text = source.text.splitlines()
    at = _position(text, source.path, file, line)
    if at is None:
        try:
            text, at = (include / file).read_text().splitlines(), line - 1
        except OSError:
            return []
    shown = range(max(0, at - _AROUND), min(len(text), at + _AROUND + 1))
    return [f"{'>' if i == at else ' '}{line + i - at:5} | {text[i]}"[:_WIDTH] for i in shown]


def _position(text: list[str], path: str, file: str, line: int) -> int | None:
    """Index in `text` of what the compiler calls `file`(`line`)."""
    name, number = path, 0
    for index, content in enumerate(text):
        if directive := _LINE_DIRECTIVE.match(content):
            name, number = directive[2] or name, int(directive[1]) - 1
            continue
        number += 1
        if (name, number) == (file, line):
            return index
    return None
