"""Branches that no test takes: declared beside the templates, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from baracuda.codegen.emit.generate import TEMPLATES
from baracuda.codegen.spec.yaml_source import read_yaml
from baracuda.runtime import SpecError

from .branches import Branch

NAME = "untaken.yaml"
_FIELDS, _OPTIONAL = {"file", "line", "reason"}, {"ops"}


@dataclass(frozen=True)
class Declared:
    """A part of a line of a file, of which the tests of `ops`, or of all ops, need not take each branch."""

    file: str
    line: str
    reason: str
    ops: tuple[str, ...] = ()

    def matches(self, op: str, branch: Branch) -> bool:
        named = Path(branch.file).name == self.file and self.line in branch.text
        return named and (not self.ops or op in self.ops)


def declared(path: Path = TEMPLATES / NAME) -> list[Declared]:
    """The entries of the file."""
    entries = []
    for number, entry in enumerate(read_yaml(path).data["untaken"]):
        if not isinstance(entry, Mapping) or not _FIELDS <= set(entry) <= _FIELDS | _OPTIONAL:
            raise SpecError(f"{path.name}: entry {number + 1} needs {', '.join(sorted(_FIELDS))}; got {entry!r}")
        texts = {name: str(entry[name]) for name in _FIELDS}
        entries.append(Declared(**texts, ops=tuple(map(str, entry.get("ops", ())))))
    return entries


def reason_of(op: str, branch: Branch, entries: Sequence[Declared]) -> str:
    """Why the tests of `op` need not take `branch`, or ""."""
    return next((entry.reason for entry in entries if entry.matches(op, branch)), "")


def unused(entries: Iterable[Declared], untaken: Mapping[str, Iterable[Branch]]) -> list[str]:
    """A line per entry that matches none of the branches that the tests of each op leave untaken."""
    pairs = [(op, branch) for op, branches in untaken.items() for branch in branches]
    rest = [entry for entry in entries if not any(entry.matches(*pair) for pair in pairs)]
    return [f"{NAME}: tests take every branch of {entry.file}: {entry.line!r}; remove the entry" for entry in rest]
