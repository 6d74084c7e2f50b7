"""`compare`: random problems of every op, checked against torch in float64; resumable and sharded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

import click

from baracuda.checking.apart import Apart, Lost
from baracuda.checking.compare.expected import values_of
from baracuda.checking.compare.judge import Outcome, Settings
from baracuda.checking.compare.report import failures_of, markdown, rows_of
from baracuda.checking.compare.state import Key, State
from baracuda.checking.compare.torch_values import torch_module
from baracuda.checking.compare.worker import Judge, Setup, against, judged
from baracuda.checking.executors import each, pool
from baracuda.checking.gpus import places
from baracuda.checking.repro.bundle import replay
from baracuda.checking.verify import environment
from baracuda.codegen.project import options_of, plans_of, refuse_unknown, unless_installed
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import DriverError, InvalidProblem, Unsupported
from baracuda.runtime.devices.cuda import CudaDevice

from ..speedup import show_speedup
from ..terminal import progress, show_json, show_table

_REPEATS = {"cuda": 100, "host": 2}
_PATIENCE = 900.0  # seconds for a problem


def compare(
    ops: Sequence[str],
    specs: Path,
    package: str,
    count: int,
    seed: int,
    part: str,
    state: Path | None,
    device: str | None,
    repeats: int | None,
    limit: int,
    search: int,
    executor: str,
    gpus: str | None,
    jobs: int | None,
    speedup: bool,
    only: int | None,
    repro: Path | None,
    as_json: bool,
) -> bool:
    """Judge problems 0 to `count` of `ops` that `state` lacks; true if all pass.

    Failures are saved in the folder `repro`. With `speedup`, only print how much faster several workers judge than one.
    """
    device = _device(device)
    settings = Settings(seed, device, limit, repeats or _REPEATS[device], search)
    torch_module()
    plans_of(package)
    chosen, left_out = _chosen(ops, specs)
    for line in left_out:
        click.echo(line, err=True)
    options, judge = options_of(specs, package), cache(lambda: Judge(specs, package, chosen, settings))
    if only is not None:
        outcomes = [judge()(op, only) for op in chosen]
        _show(outcomes, settings, options, _save_failures(judge, outcomes, specs, package, repro), as_json, each=True)
        return not any(outcome.failure for outcome in outcomes)
    work = shard([(op, index) for index in range(count) for op in chosen], part)
    there = unless_installed(specs)
    apart = Apart.of(environment(there, package, (), device), _PATIENCE)
    opened = partial(pool, apart=apart, alike=partial(against, there, package))
    judge_there = partial(judged, Setup(there, package, tuple(chosen), settings))
    if speedup:
        show_speedup(
            lambda within: [*each(within, judge_there, deque(work))],
            executor,
            jobs,
            places=places(gpus, device),
            opened=opened,
            as_json=as_json,
        )
        return True
    record = State(state, settings, against(there, package))
    left = deque(key for key in work if key not in record.outcomes)
    with progress("problems", len(left)) as step, opened(executor, jobs, places=places(gpus, device)) as within:
        for key, given in each(within, judge_there, left):
            record.add(Outcome(*key, failure=str(given), fatal=True) if isinstance(given, Lost) else given)
            step()
    outcomes = [record.outcomes[key] for key in work]
    _show(outcomes, settings, options, _save_failures(judge, outcomes, specs, package, repro), as_json)
    return not any(outcome.failure for outcome in outcomes)


def write_report(paths: Sequence[Path], out: Path | None) -> None:
    """Write a Markdown report of state files to a file or stdout."""
    text = markdown(paths)
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def shard(work: Sequence[Key], part: str) -> list[Key]:
    """The I-th of N shares, for "I/N"; each has some problems of every op."""
    index, _, count = part.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise InvalidProblem(f"--shard is I/N with 1 <= I <= N, got {part!r}")
    return [key for key in work if key[1] % int(count) == int(index) - 1]


def _device(device: str | None) -> str:
    if device == "cuda" and not CudaDevice.available():
        raise DriverError("no CUDA device to compare on; use the host device")
    return device or ("cuda" if CudaDevice.available() else "host")


def _chosen(ops: Sequence[str], specs: Path) -> tuple[list[str], list[str]]:
    """The ops that torch can check; prints one line for each other one."""
    loaded = load_folder(specs, ops)
    refuse_unknown(ops, loaded)
    chosen, left_out = [], []
    for op in dict.fromkeys(ops or loaded):
        spec = loaded[op].spec
        if values_of(spec) is not None:
            chosen.append(op)
        elif spec.by_hand:
            raise Unsupported(f"{op}: has no torch equivalent in checking/compare/torch_values.py")
        else:
            left_out.append(f"{op}: has no torch equivalent; 'baracuda-gen test {op}' covers it")
    return chosen, left_out


def _save_failures(
    judge: Callable[[], Judge], outcomes: Sequence[Outcome], specs: Path, package: str, folder: Path | None
) -> dict[Key, str]:
    """Save each failure whose problem can be drawn, and return the command that reruns it."""
    failed = [outcome for outcome in outcomes if outcome.failure] if folder else []
    commands = {}
    with progress("keeping failures", len(failed)) as step:
        for outcome in failed:
            assert folder is not None
            if file := judge().keep(outcome, folder):
                commands[outcome.op, outcome.index] = replay(file, specs, package)
            step()
    return commands


def _show(
    outcomes: Sequence[Outcome],
    settings: Settings,
    options: str,
    commands: Mapping[Key, str],
    as_json: bool,
    *,
    each: bool = False,
) -> None:
    rows, failures = rows_of(outcomes), failures_of(outcomes, settings, options, commands)
    if as_json:
        show_json({"settings": asdict(settings), "outputs": rows, "failures": failures})
        return
    for outcome in outcomes if each else ():
        click.echo(f"{outcome.op} {outcome.index}: {outcome.kernel} on {outcome.descriptor}")
        click.echo(f"  {outcome.style} numbers; {outcome.layouts}")
    if rows:
        show_table(rows)
        click.echo()
    for row in failures:
        click.echo("\n  ".join(f"{name}: {value}" for name, value in row.items()))
    click.echo(f"{len(outcomes)} problems of {len({o.op for o in outcomes})} ops, {len(failures)} failures")
