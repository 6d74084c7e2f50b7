"""Files of a project that lie beside a spec: device headers of hand-written kernels, and modules of oracles.

Neither is executed when a spec is read: headers become part of the generated source, modules are imported by tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from baracuda.runtime import SpecError
from baracuda.runtime.compile.line_map import Place

from .yaml_text import display_path, is_below, read_text

_QUOTED = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"]*)".*')
_ONCE = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+once[ \t]*")


def file_beside(folder: Path | None, name: str) -> Path | None:
    """The file of that name in the spec's folder, if there is one; SpecError for a link that leads out of it."""
    if folder is None or not (path := folder / name).is_file():
        return None
    if not is_below(path, folder):
        raise SpecError(f"{display_path(path)}: is a link that leads out of {folder.name!r}; put the file itself there")
    return path


def header_beside(folder: Path | None, name: str, shown: str = "") -> list[tuple[Place, str]]:
    """The lines of a header in the spec's folder, none if it is not there, with what it includes in quotes, each once.

    `shown` is the folder in places. SpecError with the line for what it includes that is not there.
    """
    if folder is None or file_beside(folder, name) is None:
        return []
    return list(_lines(folder, name, shown, {name}))


def _lines(folder: Path, name: str, shown: str, seen: set[str]) -> Iterator[tuple[Place, str]]:
    path = folder / name
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not (included := _QUOTED.fullmatch(line)):
            yield Place(f"{shown}{name}", number), "" if _ONCE.fullmatch(line) else line
            continue
        if file_beside(folder, included[1]) is None:
            wanted = "quotes are for files beside the spec, <baracuda/...> is for those of the library"
            raise SpecError(f"{display_path(path)}:{number}: there is no {included[1][:64]!r}; {wanted}")
        if included[1] not in seen:
            seen.add(included[1])
            yield from _lines(folder, included[1], shown, seen)
