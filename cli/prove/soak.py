"""`soak`: run kernels for long on many threads and streams, and see that bits stay and that nothing grows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from baracuda.checking.problems.subject import Subject
from baracuda.checking.soak.case import Case, cases_of
from baracuda.checking.soak.load import Load, Until
from baracuda.checking.soak.shortage import shortage
from baracuda.checking.soak.usage import Usage, grown, usage
from baracuda.checking.trials.memory import Memory, memory_of
from baracuda.checking.trials.ready import in_threads
from baracuda.checking.trials.trial import message_of
from baracuda.codegen.project import plans_of, refuse_none, refuse_ungenerated, refuse_unknown
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import DriverError, Unsupported, get_device
from baracuda.runtime.devices.cuda import CudaDevice

from ..terminal import Row, progress, show_json, show_table

_PHASES = 5  # after each of them the process is measured
_STREAMS = {"host": 1}  # has none
_REPLAYS = 16  # runs at each place, of a GPU that is to run a number of times


def soak(
    ops: Sequence[str],
    specs: Path,
    package: str,
    device: str | None,
    minutes: float,
    runs: int | None,
    threads: int,
    streams: int,
    as_json: bool,
) -> bool:
    """Run all cases so often, or for so long; true if nothing is wrong and nothing grew."""
    device = device or ("cuda" if CudaDevice.available() else "host")
    if device == "cuda" and not CudaDevice.available():
        raise DriverError("no CUDA device to run on; use the host device")
    memory = memory_of(device)
    library = np if device == "host" else memory.cupy  # type: ignore[attr-defined]
    cases, wrong = _first_runs(_cases(ops, specs, package, memory), memory, library)
    wrong += shortage(memory, library)
    load = Load(cases, library, threads, _STREAMS.get(device, streams))
    with load.phase(Until(end=threads)):
        pass  # libraries compile and load what they need
    load.runs = load.retried = 0
    load.replays = _REPLAYS if runs and device == "cuda" else 1
    rows: list[Row] = []
    measured: list[Usage] = []
    with progress("phases", _PHASES) as step:
        for until in _phases(runs and -(-runs // load.replays), minutes):
            before, began = load.runs, time.monotonic()
            with load.phase(until):
                wrong += shortage(memory, library)
            load.renew()  # how many calls plans remember depends on where arrays lay
            measured.append(usage(memory))
            seconds = round(time.monotonic() - began, 1)
            rows.append({"phase": len(rows) + 1, "seconds": seconds, "runs": load.runs - before, **measured[-1].row()})
            step()
            if load.failures:
                break
    wrong += [f"{name}: {count} words have other bits than in the first run" for name, count in load.wrong.items()]
    wrong += [f"{name}: {message}" for name, message in load.failures.items()]
    wrong += grown(measured)
    _show(load, rows, wrong, get_device(memory.name).arch, as_json)
    return not wrong


def _cases(ops: Sequence[str], specs: Path, package: str, memory: Memory) -> list[Case]:
    plans_of(package)
    loaded, arch = load_folder(specs), get_device(memory.name).arch
    refuse_none(loaded, specs)
    refuse_unknown(ops, loaded)
    chosen = [*dict.fromkeys(ops or loaded)]
    refuse_ungenerated(chosen, loaded, package)
    cases: list[Case] = []
    with progress("problems", len(chosen)) as step:
        for op in chosen:
            cases += cases_of(Subject(loaded[op], loaded, package), arch, memory.name)
            step()
    if not cases:
        raise Unsupported(f"{', '.join(chosen)}: no kernel runs on {arch}")
    return cases


def _first_runs(cases: Sequence[Case], memory: Memory, library: object) -> tuple[list[Case], list[str]]:
    """Compile by all cores, then run each case alone: those that go on, and what is wrong with the others."""
    tasks = [task for case in cases for task in case.compilations()]
    with progress("kernels", len(tasks)) as step:
        in_threads(tasks, step)
    right, wrong = [], []
    with progress("first runs", len(cases)) as step:
        for case in cases:
            try:
                case.run_first(memory, library)
                right.append(case)
            except Exception as error:
                wrong.append(f"{case.name}: {message_of(error)}")
            step()
    return right, wrong


def _phases(runs: int | None, minutes: float) -> Iterator[Until]:
    for phase in range(_PHASES):
        if runs is None:
            yield Until(deadline=time.monotonic() + 60 * minutes / _PHASES, first=phase)
        else:
            yield Until(runs * phase // _PHASES, runs * (phase + 1) // _PHASES)


def _show(load: Load, rows: Sequence[Row], wrong: Sequence[str], arch: str, as_json: bool) -> None:
    figures = {
        "device": arch,
        "kernels": len(load.cases),
        "threads": load.threads,
        "streams": load.streams,
        "runs": load.runs,
        "places": sum(len(case.met) for case in load.cases),
        "met": sum(sum(case.met) for case in load.cases),
        "retried": load.retried,
    }
    if as_json:
        show_json({**figures, "phases": rows, "wrong": wrong})
        return
    show_table(rows)
    for line in wrong:
        click.echo(line)
    text = (
        "{runs} runs of {kernels} kernels on {device}, {met} of {places} places in batches, by {threads} threads with"
        " {streams} streams each; {retried} repeated for want of memory; "
    )
    click.echo(text.format(**figures) + f"{len(wrong)} findings")
