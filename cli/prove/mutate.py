"""`mutate`: mutants of kernels, plans, specs and the runtime, judged by the spec-driven tests on the host device."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from baracuda.checking.apart import Apart
from baracuda.checking.executors import pool
from baracuda.checking.mutation.mutants.kernels import KINDS, RUNTIME, SPEC, Mutant, digest_of
from baracuda.checking.mutation.mutants.runtime import of_runtime
from baracuda.checking.mutation.mutants.specs import of_spec
from baracuda.checking.mutation.report import Report, percent
from baracuda.checking.mutation.sample import sample, shard
from baracuda.checking.mutation.state import State
from baracuda.checking.mutation.survivors import declared, unused
from baracuda.checking.mutation.verdict import SURVIVED, Outcome
from baracuda.checking.mutation.worker import mutants_of, run
from baracuda.checking.problems.subject import Subject
from baracuda.checking.variables import SAMPLE
from baracuda.checking.verify import environment
from baracuda.codegen.project import (
    TOOLS,
    installed,
    plans_of,
    refuse_ungenerated,
    refuse_unknown,
    specs_at,
    unless_installed,
)
from baracuda.codegen.spec.load import load_folder

from ..terminal import progress, show_json, show_table, working

_SAMPLE = "0"  # of the problems that checks derive, unless the environment names another


def mutate(
    ops: Sequence[str],
    specs: Path,
    package: str,
    count: int | None,
    kinds: Sequence[str],
    seed: int,
    state: Path | None,
    executor: str,
    jobs: int | None,
    part: str,
    at_least: float,
    as_json: bool,
) -> bool:
    """Judge the mutants of `ops` that `state` lacks; true if at least `at_least` percent are killed.

    Without `ops`, those of all ops.
    """
    with working("listing mutants"):
        subjects = _subjects(ops, specs, package)
        root = _checkout(specs)
        chosen = shard(_mutants(ops, subjects, root, kinds or KINDS), part)
    chosen = chosen if count is None else sample(chosen, count, seed)
    there = unless_installed(specs)
    record = State(state, against(there, package))
    left = [mutant for mutant in chosen if mutant.id not in record.outcomes]
    apart = Apart.of(environment(there, package, (), "host") | {SAMPLE: os.environ.get(SAMPLE, _SAMPLE)})
    with (
        progress("mutants", len(left)) as step,
        pool(executor, jobs, apart=apart, alike=partial(against, there, package)) as within,
    ):

        def judged(outcome: Outcome) -> None:
            record.add(outcome)
            step()

        run(left, within, judged)
    report = Report(chosen, record.outcomes, declared())
    is_whole = not ops and count is None and part == "1/1"
    stale = unused(report.declared, report.survivors) if is_whole else []
    _show(report, stale, as_json)
    return (report.score is None or report.score >= at_least) and not stale


def _subjects(ops: Sequence[str], specs: Path, package: str) -> dict[str, Subject]:
    plans_of(package)
    loaded = load_folder(specs)
    named = [op for op in ops if op != RUNTIME]
    refuse_unknown(named, loaded)
    refuse_ungenerated(named or loaded, loaded, package)
    return {op: Subject(entry, loaded, package) for op, entry in loaded.items()}


def _checkout(specs: Path) -> Path | None:
    """The checkout that the specs and the runtime are of, or None."""
    root = installed("baracuda.runtime").resolve().parent
    return root if (root / ".imports").is_dir() and specs.resolve().is_relative_to(root) else None


def _mutants(
    ops: Sequence[str], subjects: Mapping[str, Subject], root: Path | None, kinds: Collection[str]
) -> list[Mutant]:
    """Those of these kinds; of specs and, unless only ops are named, of the runtime in a checkout alone."""
    mutants: list[Mutant] = []
    for op in [op for op in ops if op != RUNTIME] or (() if ops else subjects):
        mutants += mutants_of(subjects[op], subjects, kinds)
        if root is not None and SPEC in kinds:
            path = subjects[op].loaded.source.path.resolve()
            mutants += of_spec(op, path, str(path.relative_to(root)))
    if root is not None and RUNTIME in kinds and (not ops or RUNTIME in ops):
        mutants += of_runtime(root)
    return mutants


def against(specs: Path | None, package: str) -> str:
    """A digest of everything that verdicts depend on."""
    folders = map(installed, TOOLS)
    return digest_of(*folders, specs_at(specs), Path(str(plans_of(package).__file__)).parent)


def _show(report: Report, stale: Sequence[str], as_json: bool) -> None:
    by_op, by_operator = report.by("op", lambda m: m.op), report.by("operator", _operator)
    if as_json:
        tables = {"ops": by_op, "operators": by_operator, "killers": report.killers(), "survivors": report.listed()}
        show_json({**tables, "stale": list(stale), "score": report.score})
        return
    for rows in (by_op, by_operator, report.killers(), report.listed()):
        if rows:
            show_table(rows)
            click.echo()
    for line in stale:
        click.echo(line)
    left = sum(report.fate(mutant) == SURVIVED for mutant in report.mutants)
    click.echo(f"{len(report.mutants)} mutants, {left} survived without a reason: {percent(report.score)} killed")


def _operator(mutant: Mutant) -> str:
    return f"{mutant.kind} {mutant.operator}"
