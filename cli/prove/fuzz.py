"""`fuzz`: hostile specs, programs, calls and files, judged automatically; resumable."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from baracuda.checking.fuzz.report import failures_of, markdown, rows_of
from baracuda.checking.fuzz.state import State, add_faults
from baracuda.checking.fuzz.targets.all import SHARES, Target
from baracuda.checking.fuzz.verdict import FAILED, Verdict
from baracuda.checking.result_file import digest_of
from baracuda.checking.workers import Answer, Crew, Question
from baracuda.codegen.project import TOOLS, installed
from baracuda.codegen.spec.wording import did_you_mean
from baracuda.runtime import InvalidProblem

from ..terminal import progress, show_json, show_table, working

_WORKER = "baracuda.checking.fuzz.worker"
_PATIENCE = 180.0  # seconds for a case, compilation included


def fuzz(
    targets: Sequence[str], count: int, seed: int, state: Path | None, jobs: int | None, only: int | None, as_json: bool
) -> bool:
    """Judge cases 0 to `count` of `targets` that `state` lacks; true if none fails.

    Without targets, `count` is the number of specs to generate, and `SHARES` has that of the others.
    """
    _refuse_unknown(targets)
    work = dict.fromkeys(targets, count) or {name: max(1, int(count * share)) for name, share in SHARES.items()}
    with tempfile.TemporaryDirectory(prefix="baracuda-fuzz-") as folder:
        if only is not None:
            return _show_one(list(targets) or list(SHARES)[:1], seed, only, Path(folder), as_json)
        record = State(state, seed, _against())
        left = [(name, index) for name, index in _in_turn(work) if index not in record.done.get(name, ())]
        with progress("cases", len(left)) as step:

            def judged(question: Question, answer: Answer | None, death: str) -> bool:
                verdict = Verdict(**question, what=FAILED, why=death) if answer is None else Verdict(**answer)
                record.add(verdict)
                step()
                return answer is not None and (verdict.index + 1) % Target.kinds[verdict.target].recycled != 0

            crew = Crew(_WORKER, {"seed": seed, "folder": folder}, judged, _apart(folder), _PATIENCE)
            questions = ({"target": name, "index": index} for name, index in left)
            crew.work(questions, min(jobs or len(os.sched_getaffinity(0)), max(1, len(left))))
        record.flush()
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


def _apart(folder: str) -> dict[str, str]:
    """Environment variables that keep processes away from the user's cache."""
    return {"BARACUDA_CACHE_DIR": f"{folder}/cache", "TMPDIR": folder}


def _refuse_unknown(targets: Sequence[str]) -> None:
    for name in targets:
        if name not in Target.kinds:
            raise InvalidProblem(f"no target {name!r}; {did_you_mean(name, Target.kinds)}")


def _against() -> str:
    """A digest of everything that verdicts depend on."""
    return digest_of(map(installed, (*TOOLS, "baracuda.specs")))


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


def _show_one(targets: Sequence[str], seed: int, index: int, folder: Path, as_json: bool) -> bool:
    """Judge one case of each target in this process and print it."""
    from baracuda.checking.fuzz import watch

    os.environ.update(_apart(str(folder)))
    watch.install()
    failed = False
    for name in targets:
        (target_folder := folder / name).mkdir()
        target = Target.kinds[name](seed, target_folder)
        verdict = target.verdict(index)
        failed |= verdict.what == FAILED
        case = target.describe(target.drawn(index))
        if as_json:
            show_json({"target": name, "index": index, "what": verdict.what, "why": verdict.why, "case": case})
        else:
            click.echo(f"{case}\n\n{name} {index}: {verdict.what}; {verdict.why}")
    return not failed
