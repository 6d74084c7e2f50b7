"""Outcomes in a file, a line of JSON per mutant, from which an interrupted run resumes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .verdict import Outcome, Verdict


class State:
    """Outcomes in a file, or in memory only. Lines `against` another digest of code and tests are ignored."""

    def __init__(self, path: Path | None, against: str) -> None:
        self.path, self.against = path, against
        self.outcomes: dict[str, Outcome] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
            if (outcome := _outcome(line, against)) is not None:
                self.outcomes[outcome.id] = outcome

    def add(self, outcome: Outcome) -> None:
        """Add an outcome and write it to the file."""
        self.outcomes[outcome.id] = outcome
        if self.path is not None:
            with self.path.open("a+b") as file:  # an unfinished line of an interrupted run is not continued
                file.seek(0, 2)
                torn = file.tell() > 0 and (file.seek(-1, 2), file.read(1))[1] != b"\n"
                line = json.dumps({"against": self.against, **asdict(outcome)})
                file.write(b"\n" * torn + line.encode() + b"\n")


def _outcome(line: str, against: str) -> Outcome | None:
    try:
        record: dict[str, Any] = json.loads(line)
        if record.pop("against") != against:
            return None
        return Outcome(**{**record, "verdict": Verdict(**record["verdict"])})
    except (ValueError, KeyError, TypeError):
        return None
