"""Measurements on disk, one line of JSON per contestant and case, so that an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from baracuda.checking.result_file import append

from .contest import OURS, Measured


class State:
    """Measurements of the kernels that `against` identifies, in a file or in memory."""

    def __init__(self, path: Path | None, against: str) -> None:
        self.path, self.against = path, against
        self.measured: dict[tuple[str, str], list[Measured]] = {}
        for texts, measured in lines([path]) if path is not None and path.exists() else ():
            if texts == against:
                self._take([measured])

    def results_of(self, op: str, case: str, device: str, peers: Iterable[str]) -> list[Measured] | None:
        """The results of a case measured on this device with all of these peers, unless it failed."""
        results = self.measured.get((op, case), [])
        ours = next((m for m in results if m.peer == OURS), None)
        if ours is None or ours.us is None or ours.facts.get("device") != device:
            return None
        return results if set(peers) <= set(ours.asked) else None

    def add(self, results: list[Measured]) -> None:
        """Record the contestants of one case in memory and in the file."""
        self._take(results)
        if self.path is not None:
            for measured in sorted(results, key=lambda m: m.peer == OURS):  # ours last: with it the case is complete
                append(self.path, json.dumps({"against": self.against, **asdict(measured)}))

    def _take(self, results: list[Measured]) -> None:
        for measured in results:
            stored = self.measured.setdefault((measured.op, measured.case), [])
            stored[:] = [m for m in stored if m.peer != measured.peer]
            stored.append(measured)


def lines(paths: Iterable[Path]) -> Iterator[tuple[str, Measured]]:
    """Every measurement in the files, with its source digest; invalid lines are skipped."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
                against = str(record.pop("against"))
                yield against, Measured(**{**record, "asked": tuple(record.get("asked", ()))})
            except (ValueError, KeyError, TypeError, AttributeError):
                continue


def latest(paths: Iterable[Path]) -> list[Measured]:
    """The latest measurement of each contestant and case."""
    by_contestant = {(m.op, m.case, m.peer): m for _, m in lines(paths)}
    return list(by_contestant.values())
