"""`fuzz`: hostile specs, programs, calls and files, judged automatically; resumable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from baracuda.checking.apart import Apart, Lost
from baracuda.checking.executors import Pool, each, pool
from baracuda.checking.fuzz.report import failures_of, markdown, rows_of
from baracuda.checking.fuzz.state import State, add_faults
from baracuda.checking.fuzz.targets.all import SHARES, Target
from baracuda.checking.fuzz.verdict import FAILED, Verdict
from baracuda.checking.fuzz.worker import Case, against, description, judged, ready
from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import InvalidProblem

from ..terminal import progress, show_json, show_table, working

_PATIENCE = 180.0  # seconds for a case, compilation included


def fuzz(
    targets: Sequence[str],
    count: int,
    seed: int,
    state: Path | None,
    executor: str,
    jobs: int | None,
    only: int | None,
    as_json: bool,
) -> bool:
    """Judge cases 0 to `count` of `targets` that `state` lacks; true if none fails.

    Without targets, `count` is the number of specs to generate, and `SHARES` has that of the others.
    """
    _refuse_unknown(targets)
    work = dict.fromkeys(targets, count) or {name: max(1, int(count * share)) for name, share in SHARES.items()}
    record = State(state, seed, against())
    left = deque((name, index) for name, index in _in_turn(work) if index not in record.done.get(name, ()))
    slow = deque[Case]()
    with pool(executor, jobs, apart=Apart(patience=_PATIENCE), alike=against) as within:
        if only is not None:
            return _show_one(within, list(targets) or list(SHARES)[:1], seed, only, as_json)
        for name, lost in each(within, partial(ready, seed), deque(dict.fromkeys(name for name, _ in left))):
            if lost:
                raise InvalidProblem(f"the target {name!r} cannot be set up: {lost}")
        with progress("cases", len(left)) as step, closing(record):
            for case, given in each(within, partial(judged, seed), left):
                if _is_slow(verdict := _verdict(case, given)):
                    slow.append(case)
                else:
                    record.add(verdict)
                step()
    if slow:  # what runs beside a case costs it CPU time, too: in a new process that has the machine to itself
        with pool(executor, 1, apart=Apart(patience=_PATIENCE), alike=against) as alone, closing(record):
            for case, given in each(alone, partial(judged, seed), slow):
                record.add(_verdict(case, given))
    return _show(record, seed, as_json)


def cache_faults(count: int, seed: int, state: Path | None, as_json: bool) -> bool:
    """Inject every cache fault and record the results in `state`; true if all were handled."""
    from baracuda.checking.fuzz.cache_faults import run

    with working("damaging caches"):
        rows = [asdict(row) for row in run(count, seed)]
    if state is not None:
        add_faults(state, rows)
    (show_json if as_json else show_table)(rows)
    return all(row["contained"] == row["tried"] for row in rows)


def write_report(paths: Sequence[Path], out: Path | None) -> None:
    """Write a Markdown report of state files to a file or stdout."""
    text = markdown(paths)
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def _in_turn(work: dict[str, int]) -> Iterator[tuple[str, int]]:
    """All cases, with those of each target spread evenly."""
    cases = ((index / count, name, index) for name, count in work.items() for index in range(count))
    return ((name, index) for _, name, index in sorted(cases))


def _refuse_unknown(targets: Sequence[str]) -> None:
    for name in targets:
        if name not in Target.kinds:
            raise InvalidProblem(f"no target {name!r}; {did_you_mean(name, Target.kinds)}")


def _show(record: State, seed: int, as_json: bool) -> bool:
    rows, failures = rows_of(record.tallies), failures_of(record.tallies, seed)
    if as_json:
        show_json({"seed": seed, "targets": rows, "failures": failures})
        return not failures
    show_table(rows)
    click.echo()
    for row in failures:
        click.echo("\n  ".join(f"{name}: {value}" for name, value in row.items()))
    click.echo(f"{sum(t.cases for t in record.tallies.values())} cases, {len(failures)} failures")
    return not failures


def _show_one(within: Pool, targets: Sequence[str], seed: int, index: int, as_json: bool) -> bool:
    """Judge one case of each target and print it."""
    failed = False
    for name in targets:
        case = within.executor.submit(description, seed, (name, index)).result()
        ((_, given),) = each(within, partial(judged, seed), deque([(name, index)]))
        verdict = _verdict((name, index), given)
        failed |= verdict.what == FAILED
        if as_json:
            show_json({"target": name, "index": index, "what": verdict.what, "why": verdict.why, "case": case})
        else:
            click.echo(f"{case}\n\n{name} {index}: {verdict.what}; {verdict.why}")
    return not failed


def _is_slow(verdict: Verdict) -> bool:
    kind = Target.kinds[verdict.target]
    return verdict.what == FAILED and kind.pure and verdict.seconds > kind.seconds


def _verdict(case: Case, given: Verdict | Lost) -> Verdict:
    """A case that its process died of has failed."""
    return Verdict(*case, FAILED, str(given)) if isinstance(given, Lost) else given
