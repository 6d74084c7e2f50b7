"""What is judged already, a line of JSON for each problem, so that an interrupted run goes on where it stopped.

Several processes may add to one file: a line is one write at its end.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .judge import Measured, Outcome, Settings

_TEXTS = (".py", ".cu", ".cuh", ".h", ".cpp", ".yaml", ".json")
Key = tuple[str, int]  # op and number of the problem


class State:
    """Outcomes of runs with the same settings `against` the same texts: in a file, or in memory only."""

    def __init__(self, path: Path | None, settings: Settings, against: str) -> None:
        self.path, self.settings, self.against = path, settings, against
        self.outcomes: dict[Key, Outcome] = {}
        for known, texts, outcome in lines([path]) if path is not None and path.exists() else ():
            if (known, texts) == (settings, against):
                self.outcomes[outcome.op, outcome.index] = outcome

    def add(self, outcome: Outcome) -> None:
        """Remember it, and have it in the file before returning."""
        self.outcomes[outcome.op, outcome.index] = outcome
        if self.path is not None:
            line = json.dumps({"against": self.against, "settings": asdict(self.settings), **asdict(outcome)})
            append(self.path, line)


def append(path: Path, line: str) -> None:
    """Add a line; what an interrupted run left unfinished before it stays a line of its own."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(file).st_size
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        os.write(file, b"\n" * torn + line.encode() + b"\n")
    finally:
        os.close(file)


def lines(paths: Iterable[Path]) -> list[tuple[Settings, str, Outcome]]:
    """Every outcome in the files, with its settings and the digest of the texts; what is no outcome is left out."""
    found = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                given: dict[str, Any] = json.loads(line)
                settings, against = Settings(**given.pop("settings")), given.pop("against")
                found.append((settings, against, outcome_of(given)))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return found


def outcome_of(given: dict[str, Any]) -> Outcome:
    """The outcome that `asdict` made `given` of."""
    return Outcome(**{**given, "outputs": {name: Measured(**m) for name, m in given["outputs"].items()}})


def digest_of(folders: Iterable[Path]) -> str:
    """Changes with every text below `folders` that results depend on."""
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in _TEXTS):
            found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]
