"""`tune`: measure which kernel serves a problem best, and save those that beat the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from baracuda.checking.gpus import places
from baracuda.codegen.project import plans_of
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.tuned import digest_of_kernels, path_of, promised, read_table, write_table
from baracuda.runtime import REGISTRY, ElementKind, InvalidProblem, KernelSku

from ..speedup import show_speedup
from ..terminal import progress, show_json, show_table
from .bench import chosen_cases, complain

if TYPE_CHECKING:  # what a run needs is imported by it
    from baracuda.benchmarks.case import Case
    from baracuda.benchmarks.contest import Measured
    from baracuda.benchmarks.tuning import Trial
    from baracuda.checking.executors import Pool

Trials = Mapping[str, Sequence["Trial"]]  # by op


def tune(
    ops: Sequence[str],
    specs: Path,
    package: str,
    case: str | None,
    dtypes: str | None,
    sweep: bool,
    margin: float,
    state: Path | None,
    executor: str,
    gpus: str | None,
    speedup: bool,
    dry_run: bool,
    as_json: bool,
) -> bool:
    """Measure what `state` lacks and save the winners; true if the rule's choice was timed in every case.

    With `speedup`, only print how much faster several GPUs measure than one.
    """
    from baracuda.benchmarks import worker

    plans_of(package)
    kinds = [ElementKind(name).value for name in dtypes.split(",")] if dtypes else []
    named = ops or (tuple(load_folder(specs)) if sweep else ())  # a sweep is of all ops on rows
    cases = chosen_cases(named, specs, package, case=case, sweep=sweep, dtypes=kinds)
    by_rule = [replace(c, tuned=False) for c in cases if c.arch is None]
    if speedup:
        if gpus is None:
            raise InvalidProblem("--speedup is of several GPUs beside one; pass --gpus")
        show_speedup(
            lambda within: tried_all(by_rule, within, specs, None),
            executor,
            1,
            places=places(gpus),
            opened=worker.opener(specs, package),
            as_json=as_json,
        )
        return True
    with worker.gpus(executor, gpus, specs, package) as within:
        trials = tried_all(by_rule, within, specs, state)
    show(trials, margin, as_json=as_json)
    for op, of_op in trials.items():
        keep(op, of_op, specs, margin, dry_run=dry_run)
    failed = [trial for of_op in trials.values() for trial in of_op if trial.failed]
    for trial in failed:
        click.echo(f"{trial.case.op} {trial.case.label}: {trial.rule.problem}", err=True)
    return not failed


def tried_all(cases: Sequence[Case], within: Pool, specs: Path, state: Path | None) -> Trials:
    """The trial of each case: from the state file, or measured now and recorded."""
    from baracuda.benchmarks import worker
    from baracuda.benchmarks.state import State
    from baracuda.benchmarks.tuning import RULE, Trial

    facts = within.executor.submit(worker.about, ()).result().facts
    states = {op: State(state, digest_of(op)) for op in dict.fromkeys(c.op for c in cases)}
    found = {case: states[case.op].results_of(case.op, case.label, facts["device"], ()) for case in cases}
    left = [case for case, lines in found.items() if lines is None]
    with progress("tuning", len(left)) as step:
        for case, timed in worker.timed(within, worker.tuned, left, specs, facts):
            states[case.op].add(timed.lines)
            found[case] = timed.lines
            complain(case, timed)
            step()
    trials: dict[str, list[Trial]] = {op: [] for op in states}
    for case, lines in found.items():
        trials[case.op].append(Trial(case, tuple(sorted(lines or (), key=lambda m: m.peer != RULE))))
    return trials


def digest_of(op: str) -> str:
    """A digest of the sources of an op's kernels."""
    return digest_of_kernels(REGISTRY.candidates(op)[0].source.raw)


def keep(op: str, trials: Sequence[Trial], specs: Path, margin: float, *, dry_run: bool) -> None:
    """Merge winners into the architecture's table, and report each in one line."""
    from baracuda.benchmarks.tuning import decided

    facts = trials[0].rule.facts
    about = {name: facts.get(name, "unknown") for name in ("device", "driver", "nvrtc")}
    path = path_of(specs, facts["arch"], op)
    before = read_table(path)
    after = decided(trials, before, margin, {**about, "digest": digest_of(op)})
    new, gone = (len({m.key for m in a} - {m.key for m in b}) for a, b in ((after, before), (before, after)))
    summary = f"{path}: {len(after)} measurements, {new} new, {gone} gone"
    if after == list(before):
        click.echo(f"{summary}; unchanged", err=True)
    elif dry_run:
        click.echo(f"{summary}; not written", err=True)
    else:
        write_table(path, after)
        click.echo(f"{summary}; run 'baracuda-gen generate' to put them into plans", err=True)


def show(trials: Trials, margin: float, *, as_json: bool) -> None:
    """One table per op, or everything as JSON."""
    if as_json:
        show_json([asdict(m) for of_op in trials.values() for trial in of_op for m in trial.lines])
        return
    for op, of_op in trials.items():
        click.echo(op)
        show_table([row for trial in of_op for row in rows_of(trial, margin)])
        click.echo()


def rows_of(trial: Trial, margin: float) -> list[dict[str, object]]:
    """The rule's choice and every candidate of a case, with the reason it did not win."""
    from baracuda.benchmarks.tuning import RULE, objection

    exact, rule = promised(trial.case.spec, "bit_stable_across_arch"), trial.rule
    return [
        {
            "case": trial.case.label,
            "kernel": f"by rule: {m.kernel}" if m.peer == RULE else _short(m.peer),
            "us": m.us,
            "spread": _spread(m),
            "gain": f"{rule.us / m.us - 1:+.1%}" if m.peer != RULE and m.us and rule.us else None,
            "verdict": m.problem if m.peer == RULE else objection(m, rule, margin, exact=exact) or "wins",
        }
        for m in trial.lines
    ]


def _short(sku: str) -> str:
    """The part of a kernel's name that distinguishes it within its op."""
    parsed = KernelSku.parse(sku)
    return f"{parsed.arch} {parsed.schedule}"


def _spread(measured: Measured) -> str | None:
    """The interquartile range."""
    if not measured.us or measured.low is None or measured.high is None:
        return None
    return f"{(measured.high - measured.low) / measured.us:.1%}"
