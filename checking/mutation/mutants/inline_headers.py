"""Inline the project's headers into a kernel's source, so that mutants can be in headers."""

from __future__ import annotations

import re
from importlib.resources import files

INCLUDE = files("baracuda.runtime").joinpath("include")
_INCLUDED = re.compile(r"[ \t]*#[ \t]*include[ \t]*<(baracuda/[\w/]+\.cuh)>[ \t]*")
LINE = re.compile(r'[ \t]*#[ \t]*line[ \t]+(\d+)(?:[ \t]+"([^"]*)")?[ \t]*')


def with_headers(text: str, path: str) -> str:
    """`text`, which came from `path`, with each header in place of its first #include; #line says what came whence."""
    return "".join(_pasted(text, path, set()))


def _pasted(text: str, path: str, included: set[str]) -> list[str]:
    lines, file, number = [], path, 0
    for line in text.splitlines(keepends=True):
        number += 1
        bare = line.rstrip("\n")
        if match := LINE.fullmatch(bare):
            file, number = match[2] or file, int(match[1]) - 1
        if not (include := _INCLUDED.fullmatch(bare)):
            lines.append("\n" if bare.strip() == "#pragma once" else line)
            continue
        if include[1] not in included:
            included.add(include[1])
            header = INCLUDE.joinpath(include[1]).read_text(encoding="utf-8")
            lines += [f'#line 1 "{include[1]}"\n', *_pasted(header, include[1], included)]
        lines.append(f'#line {number + 1} "{file}"\n')
    return lines
