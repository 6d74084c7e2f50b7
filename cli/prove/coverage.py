"""`coverage`: the branches of device code that the spec-driven tests take, per op."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from baracuda.checking.coverage.run import Coverage, coverage_of
from baracuda.checking.coverage.untaken import declared, unused
from baracuda.codegen.project import refuse_unknown
from baracuda.codegen.spec.load import load_folder

from ..terminal import progress, show_json, show_table


def coverage(
    ops: Sequence[str], specs: Path, package: str, jobs: int | None, at_least: float, as_json: bool
) -> bool:
    """Measure each op; true if its tests take enough branches, and those left have a reason."""
    loaded, entries = load_folder(specs), declared()
    refuse_unknown(ops, loaded)
    results = []
    with progress("ops", len(ops or loaded)) as step:
        for op in ops or loaded:
            results.append(coverage_of(op, specs, package, jobs or os.cpu_count() or 1, entries))
            step()
    stale = [] if ops else unused(entries, {result.op: result.untaken for result in results})
    if as_json:
        show_json({"ops": [_numbers(result) for result in results], "untaken": _rows(results), "unused": stale})
    else:
        show_table([_numbers(result) for result in results])
        for row in _rows(results):
            click.echo("{op}: {place}, way {way}: {code}  [{reason}]".format_map(row))
        click.echo("".join(f"{line}\n" for line in stale), nl=False)
    return not stale and all(result.percent >= at_least and all(result.untaken.values()) for result in results)


def _numbers(result: Coverage) -> dict[str, object]:
    unexplained = sum(not reason for reason in result.untaken.values())
    numbers = {"branches": result.branches, "untaken": len(result.untaken), "without reason": unexplained}
    return {"op": result.op, **numbers, "percent": round(result.percent, 1)}


def _rows(results: Sequence[Coverage]) -> list[dict[str, str]]:
    return [
        {
            "op": result.op,
            "place": f"{branch.file}:{branch.line}",
            "way": f"{branch.way} of {branch.ways}",
            "code": branch.text,
            "reason": reason or "no reason declared",
        }
        for result in results
        for branch, reason in result.untaken.items()
    ]
