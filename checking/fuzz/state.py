"""Verdicts in a file, a line of JSON for many cases, from which an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..result_file import append
from .verdict import ACCEPTED, FAILED, REFUSED, Verdict

_AT_ONCE = 200  # verdicts per line


@dataclass
class Tally:
    """How many cases of a target were accepted, refused and failed; the failures; the maximum time and memory."""

    accepted: int = 0
    refused: int = 0
    failures: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0
    megabytes: float = 0.0

    @property
    def cases(self) -> int:
        """The number judged."""
        return self.accepted + self.refused + len(self.failures)

    def add(self, verdict: Verdict) -> None:
        """Add a verdict."""
        self.accepted += verdict.what == ACCEPTED
        self.refused += verdict.what == REFUSED
        self.failures += [verdict] if verdict.what == FAILED else []
        self.seconds = max(self.seconds, verdict.seconds)
        self.megabytes = max(self.megabytes, verdict.megabytes)

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        self.accepted += other.accepted
        self.refused += other.refused
        self.failures += other.failures
        self.seconds, self.megabytes = max(self.seconds, other.seconds), max(self.megabytes, other.megabytes)


class State:
    """Verdicts for a `seed` and code with the digest `against`, in a file or in memory only."""

    def __init__(self, path: Path | None, seed: int, against: str) -> None:
        self.path, self.seed, self.against = path, seed, against
        self.tallies: dict[str, Tally] = {}
        self.done: dict[str, set[int]] = {}
        self._waiting: dict[str, list[Verdict]] = {}
        for line in lines([path]) if path is not None and path.exists() else ():
            if (line.seed, line.against) == (seed, against):
                self._count(line.target, line.indices, line.tally)

    def _count(self, target: str, indices: Sequence[int], tally: Tally) -> None:
        self.done.setdefault(target, set()).update(indices)
        self.tallies.setdefault(target, Tally()).merge(tally)

    def add(self, verdict: Verdict) -> None:
        """Add a verdict; it is written when a line is full, or by `close`."""
        waiting = self._waiting.setdefault(verdict.target, [])
        waiting.append(verdict)
        if len(waiting) >= _AT_ONCE or verdict.what == FAILED:
            self._write(verdict.target)

    def close(self) -> None:
        """Write all verdicts to the file."""
        for target in list(self._waiting):
            self._write(target)

    def _write(self, target: str) -> None:
        if not (waiting := self._waiting.pop(target, [])):
            return
        tally, indices = Tally(), sorted(verdict.index for verdict in waiting)
        for verdict in waiting:
            tally.add(verdict)
        self._count(target, indices, tally)
        if self.path is not None:
            facts = {"against": self.against, "seed": self.seed, "target": target, "runs": _runs(indices)}
            append(self.path, json.dumps({**facts, **asdict(tally)}))


@dataclass(frozen=True)
class Line:
    """A line of a state file."""

    against: str
    seed: int
    target: str
    indices: list[int]
    tally: Tally


def lines(paths: Sequence[Path]) -> Iterator[Line]:
    """Every valid line of the files."""
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                record: dict[str, Any] = json.loads(text)
                head = record.pop("against"), record.pop("seed"), record.pop("target")
                indices = [index for first, count in record.pop("runs") for index in range(first, first + count)]
                failures = [Verdict(**failure) for failure in record.pop("failures")]
                yield Line(*head, indices, Tally(**record, failures=failures))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue


def add_faults(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append the results of fault injection."""
    append(path, json.dumps({"faults": list(rows)}))


def faults_in(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The last results of fault injection in the files, if any."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                rows = json.loads(text)["faults"]
    return rows


def _runs(indices: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as runs: (first, count)."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and sum(runs[-1]) == index:
            runs[-1][1] += 1
        else:
            runs.append([index, 1])
    return runs
