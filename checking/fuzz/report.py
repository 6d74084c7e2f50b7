"""Reports: a row per target, each failure with the command that repeats it, and the page in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .state import Tally, faults_in, lines

Row = dict[str, object]
WHAT = {
    "validate": "specs as data, validated in process",
    "read": "specs, read and validated",
    "generate": "specs, read, generated and written",
    "list": "specs, read, generated, listed and described",
    "select": "changed specs that are accepted, asked to select kernels",
    "compile": "changed specs that are accepted, compiled by NVRTC",
    "execute": "random programs, compiled and run on the host device",
    "calls": "calls",
    "tables": "tables of measurements",
    "repro": "repro files",
    "entries": "cache entries, damaged",
}


def rows_of(tallies: Mapping[str, Tally]) -> list[Row]:
    """A row per target."""
    return [
        {
            "target": name,
            "cases": tally.cases,
            "accepted": tally.accepted,
            "refused": tally.refused,
            "failures": len(tally.failures),
            "most seconds": tally.seconds,
            "most MB": tally.megabytes,
        }
        for name in WHAT
        if (tally := tallies.get(name)) is not None
    ]


def failures_of(tallies: Mapping[str, Tally], seed: int) -> list[Row]:
    """Failures, each with the command that repeats it."""
    return [
        {
            "failure": f"{failure.target} {failure.index}",
            "message": failure.why,
            "again": f"baracuda-gen fuzz {failure.target} --seed {seed} --only {failure.index}",
        }
        for tally in tallies.values()
        for failure in sorted(tally.failures, key=lambda f: f.index)
    ]


def markdown(paths: Sequence[Path]) -> str:
    """The page of results in state files: for each target, those of the latest code."""
    records = list(lines(paths))
    latest = {line.target: line.against for line in records}
    tallies: dict[str, Tally] = {}
    current = [line for line in records if line.against == latest[line.target]]
    for line in current:
        tallies.setdefault(line.target, Tally()).merge(line.tally)
    head = "| what | cases | accepted | refused | failures | most CPU | most memory |"
    table = [head, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows_of(tallies):
        counts = " | ".join(f"{row[name]:,}" for name in ("cases", "accepted", "refused", "failures"))
        most = f"{row['most seconds']:.2f} s | {row['most MB']:.0f} MB"
        table.append(f"| {WHAT[str(row['target'])]} | {counts} | {most} |")
    failed = [row for line in current for row in failures_of({line.target: line.tally}, line.seed)]
    table += ["", *(f"- {row['failure']}: `{row['again']}`" for row in failed)] if failed else []
    seeds = ", ".join(str(seed) for seed in sorted({line.seed for line in records}))
    table += ["", f"Seed {seeds}; digest of the code under test: {', '.join(sorted(set(latest.values())))}."]
    return "\n".join([_HEAD, *table, *_faults(paths)]) + "\n"


def _faults(paths: Sequence[Path]) -> list[str]:
    """The section on caches."""
    rows = [[row["fault"], f"{row['tried']:,}", row["skipped"] or f"{row['contained']:,}"] for row in faults_in(paths)]
    return [_FAULTS, *(f"| {' | '.join(row)} |" for row in rows)] if rows else []


_HEAD = """# Results of fuzzing

Hostile input drawn and judged by [`baracuda-gen fuzz`](fuzzing.md). [SECURITY.md](../SECURITY.md) says how far each
kind of input is trusted. Time and memory are the maxima over all cases.
"""

_FAULTS = """
## Caches

Faults injected into caches by `baracuda-gen fuzz --faults`. A fault is contained if what is read is what was written,
or is rebuilt or refused.

| fault | tried | contained |
| --- | ---: | ---: |"""
