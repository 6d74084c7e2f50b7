"""Equivalent mutants: declared beside the templates, with the reason that no tool finds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from baracuda.codegen.emit.generate import TEMPLATES
from baracuda.codegen.spec.yaml_source import read_yaml
from baracuda.runtime import SpecError

from .mutants.kernels import Mutant

_FIELDS = {"line", "change", "reason"}
_OPTIONAL = {"ops", "targets", "uses"}


@dataclass(frozen=True)
class Declared:
    """Patterns that a survivor matches, in which "*" stands for anything; `line` and `change` are as reports show them.

    `uses` counts copies of a line: "1 of 2" where a template prints it twice.
    """

    line: str
    change: str
    reason: str
    ops: str
    targets: str
    uses: str
    place: str

    def matches(self, mutant: Mutant) -> bool:
        patterns = self.line, self.change, self.ops, self.targets, self.uses
        texts = mutant.code, mutant.change, mutant.op, mutant.target, mutant.use
        return all(map(_matches, patterns, texts))


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def declared(folder: Path = TEMPLATES) -> list[Declared]:
    """Every entry of the `*.survivors.yaml` files in `folder`."""
    entries = []
    for path in sorted(folder.glob("*.survivors.yaml")):
        source = read_yaml(path)
        for number, entry in enumerate(source.data["survivors"]):
            if not isinstance(entry, Mapping) or not _FIELDS <= set(entry) <= _FIELDS | _OPTIONAL:
                raise SpecError(f"{path.name}: entry {number + 1} needs {', '.join(sorted(_FIELDS))}; got {entry!r}")
            texts = {name: str(entry.get(name, "*")) for name in (*_FIELDS, *_OPTIONAL)}
            entries.append(Declared(**texts, place=f"{path.name}: entry {number + 1}"))
    return entries


def reason_of(mutant: Mutant, entries: Sequence[Declared]) -> str:
    """Why `mutant` is declared equivalent, or ""."""
    return next((entry.reason for entry in entries if entry.matches(mutant)), "")


def unused(entries: Iterable[Declared], mutants: Sequence[Mutant]) -> list[str]:
    """A line per entry that matches none of `mutants`."""
    rest = [entry for entry in entries if not any(entry.matches(mutant) for mutant in mutants)]
    return [f"{entry.place} matches no survivor; remove it: {entry.line!r}, {entry.change!r}" for entry in rest]
