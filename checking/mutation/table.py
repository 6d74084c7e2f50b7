"""Defects that people wrote down: edits of the source tree, in one file for each stratum."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baracuda.codegen.spec.yaml_source import read_yaml
from baracuda.runtime import SpecError

_EDIT = {"file": str, "find": str, "replace": str}
_ENTRY: dict[str, type] = {"id": str, "semantic": bool, "wrong": str, "ops": list, **_EDIT}


@dataclass(frozen=True)
class Edit:
    """`find`, which occurs once in `file`, becomes `replace`.

    Lines after the first are indented as the line in which the text begins, in the file and in what replaces them.
    """

    file: str
    find: str
    replace: str

    def edited(self, text: str) -> str:
        """`text` with the edit; raises SpecError unless it has one place for it."""
        places = list(self._places(text))
        if len(places) != 1:
            raise SpecError(f"{self.file} has {len(places)} places like {self.find!r}; needs one")
        start, end, indent = places[0]
        return text[:start] + self.replace.replace("\n", f"\n{indent}") + text[end:]

    def _places(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Start and end of each place, and the indentation of its first line."""
        first = self.find.split("\n")[0]
        for match in re.finditer(re.escape(first), text):
            line = text[text.rfind("\n", 0, match.start()) + 1 :]
            indent = line[: len(line) - len(line.lstrip(" "))]
            wanted = self.find.replace("\n", f"\n{indent}")
            if text.startswith(wanted, match.start()):
                yield match.start(), match.start() + len(wanted), indent


@dataclass(frozen=True)
class Defect:
    """What an author gets `wrong`: a wrong idea if `semantic`, else a slip. Only `ops` can show it."""

    id: str
    stratum: str
    semantic: bool
    wrong: str
    edits: tuple[Edit, ...]
    ops: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Edit the files below `root`."""
        for edit in self.edits:
            path = root / edit.file
            path.write_text(edit.edited(path.read_text(encoding="utf-8")), encoding="utf-8")


def read_table(folder: Path) -> list[Defect]:
    """The defects of every `STRATUM.yaml` in `folder`; raises SpecError for a file that lists none, or one twice."""
    defects: dict[str, Defect] = {}
    for path in sorted(folder.glob("*.yaml")):
        entries = read_yaml(path).data
        if not isinstance(entries, list):
            raise SpecError(f"{path}: needs a list of defects, got {type(entries).__name__}")
        for number, entry in enumerate(entries, 1):
            defect = _defect(entry, path.stem, f"{path}: entry {number}")
            if defects.setdefault(defect.id, defect) is not defect:
                raise SpecError(f"{path}: entry {number}: {defect.id!r} is in {defects[defect.id].stratum} already")
    if not defects:
        raise SpecError(f"{folder}: needs a STRATUM.yaml that lists defects, has none")
    return list(defects.values())


def _defect(entry: Any, stratum: str, place: str) -> Defect:
    values = dict(entry) if isinstance(entry, Mapping) else {}
    others = values.pop("also", [])
    _check(values, _ENTRY, place)
    for other in others:
        _check(other, _EDIT, place)
    edits = tuple(Edit(*(edit[key] for key in _EDIT)) for edit in (values, *others))
    return Defect(values["id"], stratum, values["semantic"], values["wrong"], edits, tuple(values["ops"]))


def _check(values: Any, kinds: Mapping[str, type], place: str) -> None:
    if not isinstance(values, Mapping) or {key: type(value) for key, value in values.items()} != kinds:
        needed = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
        raise SpecError(f"{place} needs {needed}; got {values!r}")
