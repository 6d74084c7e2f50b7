"""Inline the project's headers into a kernel's source, so that mutants can be in headers."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files

from .branches import Branches

INCLUDE = files("baracuda.runtime").joinpath("include")
_INCLUDED = re.compile(r"[ \t]*#[ \t]*include[ \t]*<(baracuda/[\w/]+\.cuh)>[ \t]*")
_CONDITION = re.compile(r"[ \t]*#[ \t]*(ifdef|ifndef|if|else|endif)\b(.*)")
LINE = re.compile(r'[ \t]*#[ \t]*line[ \t]+(\d+)(?:[ \t]+"([^"]*)")?[ \t]*')


def with_headers(text: str, path: str, defined: Collection[str] = ()) -> str:
    """`text`, which came from `path`, with each header in place of its first #include; #line says what came whence.

    Only what is included when `defined` are the macros that are defined.
    """
    return "".join(_pasted(text, path, set(), defined))


def _pasted(text: str, path: str, included: set[str], defined: Collection[str]) -> list[str]:
    lines, file, number = [], path, 0
    branches = Branches(defined)
    for line in text.splitlines(keepends=True):
        number += 1
        bare = line.rstrip("\n")
        if condition := _CONDITION.fullmatch(bare):
            branches.follow(condition[1], condition[2])
        if match := LINE.fullmatch(bare):
            file, number = match[2] or file, int(match[1]) - 1
        if not (include := _INCLUDED.fullmatch(bare)) or not branches.counts:
            lines.append("\n" if bare.strip() == "#pragma once" else line)
            continue
        if include[1] not in included:
            included.add(include[1])
            header = INCLUDE.joinpath(include[1]).read_text(encoding="utf-8")
            lines += [f'#line 1 "{include[1]}"\n', *_pasted(header, include[1], included, defined)]
        lines.append(f'#line {number + 1} "{file}"\n')
    return lines
