"""`mutate --table`: defects that people wrote down, each judged in a copy of the source tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from baracuda.checking.apart import Apart
from baracuda.checking.executors import pool
from baracuda.checking.mutation.state import State
from baracuda.checking.mutation.table import Defect, read_table
from baracuda.checking.mutation.table_report import TableReport
from baracuda.checking.mutation.tree_run import run
from baracuda.checking.mutation.verdict import Outcome
from baracuda.checking.result_file import digest_of
from baracuda.checking.variables import SAMPLE
from baracuda.checking.verify import environment
from baracuda.codegen.project import PACKAGE, TOOLS, installed
from baracuda.runtime import InvalidProblem

from ..terminal import progress, show_json, show_table


def mutate_table(
    table: Path,
    ops: Sequence[str],
    strata: Sequence[str],
    only: Sequence[str],
    state: Path | None,
    executor: str,
    jobs: int | None,
    at_least: float,
    out: Path | None,
    as_json: bool,
) -> bool:
    """Judge the chosen defects that `state` lacks; true if at least `at_least` percent are caught.

    `out` gets the report as Markdown. Without `ops`, `strata` and `only`, all defects are chosen.
    """
    defects = _chosen(read_table(table), ops, strata, only)
    root = installed("baracuda.runtime").resolve().parent
    if not (root / ".imports").is_dir():
        raise InvalidProblem(f"a table of defects is of a checkout, {root} is none")
    record = State(state, against())
    left = [defect for defect in defects if defect.id not in record.outcomes]
    apart = Apart.of(environment(None, PACKAGE, (), "host"))
    with (
        progress("defects", len(left)) as step,
        pool(executor, jobs or 1, apart=apart, alike=against) as within,
    ):

        def judged(outcome: Outcome) -> None:
            record.add(outcome)
            step()

        run(left, within, judged)
    report = TableReport(defects, record.outcomes)
    if out is not None:
        out.write_text(report.markdown("Defects of the table", _notes()), encoding="utf-8")
    _show(report, as_json)
    return report.score is None or report.score >= at_least


def _chosen(defects: Sequence[Defect], ops: Sequence[str], strata: Sequence[str], only: Sequence[str]) -> list[Defect]:
    for kind, names, known in (
        ("op", ops, {op for defect in defects for op in defect.ops}),
        ("stratum", strata, {defect.stratum for defect in defects}),
        ("defect", only, {defect.id for defect in defects}),
    ):
        if unknown := sorted(set(names) - known):
            raise InvalidProblem(f"the table has no {kind} {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return [
        defect
        for defect in defects
        if (not ops or set(ops) & set(defect.ops))
        and (not strata or defect.stratum in strata)
        and (not only or defect.id in only)
    ]


def against() -> str:
    """What verdicts depend on: every source, the sample of kernels, and whether there is torch."""
    sources = digest_of(map(installed, (*TOOLS, "baracuda.specs", PACKAGE)))
    return f"{sources} {os.environ.get(SAMPLE, 'all')} {find_spec('torch') is not None}"


def _notes() -> list[str]:
    """What the verdicts leave out."""
    sampled = os.environ.get(SAMPLE)
    notes = [f"Kernels are a sample: {SAMPLE}={sampled}."] if sampled is not None else []
    return [*notes, *(["torch is not installed, so `compare` was not asked."] if find_spec("torch") is None else [])]


def _show(report: TableReport, as_json: bool) -> None:
    strata, commands, listed, objections = report.strata(), report.commands(), report.listed(), report.objections()
    if as_json:
        show_json({"strata": strata, "commands": commands, "listed": listed, "unchanged": objections})
        return
    for rows in (strata, commands, listed, objections):
        if rows:
            show_table(rows)
            click.echo()
    for note in _notes():
        click.echo(note)
