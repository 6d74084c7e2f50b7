"""`bench`: device times of plans and peers in one run, resumable, with reports and plots."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from baracuda.checking.problems.subject import Subject
from baracuda.checking.result_file import digest_of
from baracuda.codegen.project import installed, plans_of, refuse_unknown
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import InvalidProblem

from ..terminal import console, show_json, show_table, working

if TYPE_CHECKING:  # what a run needs is imported by it
    from baracuda.benchmarks.case import Case
    from baracuda.benchmarks.contest import Measured
    from baracuda.benchmarks.worker import Timed


def bench(
    ops: Sequence[str],
    specs: Path,
    package: str,
    peers: str | None,
    case: str | None,
    sweep: bool,
    state: Path | None,
    executor: str,
    gpus: str | None,
    csv: Path | None,
    plot: Path | None,
    as_json: bool,
) -> bool:
    """Measure what `state` lacks; true if our plan was timed in every case."""
    from baracuda.benchmarks import worker
    from baracuda.benchmarks.report import rate
    from baracuda.benchmarks.state import State

    plans_of(package)
    cases = chosen_cases(ops, specs, package, case=case, sweep=sweep)
    record = State(state, digest_of([installed("baracuda.runtime"), _folder(package)]))
    named = tuple(peers.split(",")) if peers is not None else ()
    with worker.gpus(executor, gpus, specs, package) as within:
        about = within.executor.submit(worker.about, named).result()
        for name, reason in about.missing.items():
            click.echo(f"no peers of {name}: {reason}", err=True)
        if unknown := set(named) - set(about.peers):
            some = ", ".join(about.peers) or "none"
            click.echo(f"unknown peers {', '.join(sorted(unknown))}; available: {some}", err=True)
        left = [c for c in cases if record.results_of(c.op, c.label, about.facts["device"], about.peers) is None]
        screen = console(stderr=True)
        sweep_of = worker.timed(within, partial(worker.benched, named), left, specs, about.facts)
        for number, (of, timed) in enumerate(sweep_of, 1):
            record.add(timed.lines)
            said = (f"{m.peer} {m.us:.1f} us {rate(m)}" if m.us else f"{m.peer}: {m.problem}" for m in timed.lines)
            screen.print(f"[{number}/{len(left)}] {of.op} {of.label}: {'; '.join(said)}", markup=False, soft_wrap=True)
            complain(of, timed)
    results = [m for c in cases for m in record.measured.get((c.op, c.label), [])]
    show(results, as_json=as_json)
    _write(results, csv, plot, sweep)
    return all(m.us is not None for m in results if m.peer == "ours")


def complain(case: Case, timed: Timed) -> None:
    """Say in a line that a case spoiled the device for its process, if it did."""
    if timed.complaint:
        click.echo(f"{case.op} {case.label}: {timed.complaint}; exclude it with --peers", err=True)


def chosen_cases(
    ops: Sequence[str],
    specs: Path,
    package: str,
    *,
    case: str | None = None,
    sweep: bool = False,
    dtypes: Sequence[str] = (),
) -> list[Case]:
    """The cases of `ops`, or of all, whose label contains `case`, and of `dtypes`, if given."""
    from baracuda.benchmarks.case import SWEPT, cases_of, sweep_of

    loaded = load_folder(specs, ops)
    refuse_unknown(ops, loaded)
    swept = SWEPT if sweep else tuple(loaded)
    subjects = [Subject(loaded[op], loaded, package) for op in dict.fromkeys(ops or swept) if op in loaded]
    candidates = [c for subject in subjects for c in (sweep_of if sweep else cases_of)(subject, dtypes)]
    chosen = [c for c in candidates if case is None or case in c.label]
    if not chosen:
        raise InvalidProblem(f"no case to measure: none of {len(candidates)} case names contains {case!r}")
    return chosen


def show(results: Sequence[Measured], *, as_json: bool) -> None:
    """Tables of measurements and a list of what was not timed, or everything as JSON."""
    from baracuda.benchmarks.report import problems_of, rows_of

    if as_json:
        show_json([asdict(m) for m in results])
        return
    for op, rows in rows_of(results).items():
        click.echo(op)
        show_table(rows)
        click.echo()
    for line in problems_of(results):
        click.echo(line)
    tops = results[0].ceilings if results else {}
    click.echo(", ".join(f"{n} {v:.0f} {'TFLOP/s' if n == 'matmul' else 'GB/s'}" for n, v in tops.items()))


def write_report(paths: Sequence[Path], out: Path | None, csv: Path | None, plot: Path | None, sweep: bool) -> None:
    """Write a Markdown report of state files to a file or stdout, with an optional table and plot."""
    from baracuda.benchmarks.report import markdown
    from baracuda.benchmarks.state import latest

    results = latest(paths)
    command = f"baracuda-gen bench{' --sweep' if sweep else ''} --state {shlex.join(p.name for p in paths)}"
    plot_link = os.path.relpath(plot, out.parent) if plot and out else ""
    text = markdown(results, command, "Benchmarks by the length of rows" if sweep else "Benchmarks", plot_link)
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
    _write(results, csv, plot, sweep)


def show_apart(*, host: bool, compiling: bool, as_json: bool) -> None:
    """Host time per launch, and compilation times."""
    rows: dict[str, list[dict[str, object]]] = {}
    if host:
        from baracuda.benchmarks.host import rows as launches

        with working("launching"):
            rows["host"] = launches()
    if compiling:
        from baracuda.benchmarks.compile_time import rows as compilations

        with working("compiling"):
            rows["compile"] = compilations()
    if as_json:
        show_json(rows)
        return
    for name, table in rows.items():
        click.echo(name)
        show_table(table)
        click.echo()


def _write(results: Sequence[Measured], csv: Path | None, plot: Path | None, sweep: bool) -> None:
    if csv is not None:
        from baracuda.benchmarks.report import write_csv

        write_csv(results, csv)
    if plot is not None:
        from baracuda.benchmarks.plot import draw

        draw(results, plot, sweep=sweep)


def _folder(package: str) -> Path:
    return Path(str(sys.modules[package].__file__)).parent
