"""Outcomes on disk, one line of JSON per problem, so that an interrupted run resumes.

Several processes may append to one file: each line is one write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..result_file import append
from .judge import Measured, Outcome, Settings

Key = tuple[str, int]  # op and number of the problem


class State:
    """Outcomes of runs with the same settings `against` the same sources, in a file or in memory."""

    def __init__(self, path: Path | None, settings: Settings, against: str) -> None:
        self.path, self.settings, self.against = path, settings, against
        self.outcomes: dict[Key, Outcome] = {}
        for recorded, digest, outcome in lines([path]) if path is not None and path.exists() else ():
            if (recorded, digest) == (settings, against):
                self.outcomes[outcome.op, outcome.index] = outcome

    def add(self, outcome: Outcome) -> None:
        """Record it in memory and in the file."""
        self.outcomes[outcome.op, outcome.index] = outcome
        if self.path is not None:
            line = json.dumps({"against": self.against, "settings": asdict(self.settings), **asdict(outcome)})
            append(self.path, line)


def lines(paths: Iterable[Path]) -> list[tuple[Settings, str, Outcome]]:
    """Every outcome in the files, with its settings and source digest; invalid lines are skipped."""
    outcomes = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record: dict[str, Any] = json.loads(line)
                settings, against = Settings(**record.pop("settings")), record.pop("against")
                outcomes.append((settings, against, outcome_of(record)))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return outcomes


def outcome_of(values: dict[str, Any]) -> Outcome:
    """The outcome whose `asdict` is `values`."""
    return Outcome(**{**values, "outputs": {name: Measured(**m) for name, m in values["outputs"].items()}})
