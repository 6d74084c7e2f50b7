"""How much faster a sweep is by several workers: it runs twice, each time with an empty cache."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import click

from baracuda.checking.executors import DASK, Pool, pool
from baracuda.runtime import InvalidProblem
from baracuda.runtime.cache.shared import URL

from .terminal import Row, show_json, show_table


@dataclass(frozen=True, slots=True)
class Run:
    """A sweep by so many workers: seconds in all, and of each task."""

    workers: int
    seconds: float
    tasks: Sequence[float]

    def row(self) -> Row:
        """Its figures; `busy` is the workers' part of the time that they had tasks in."""
        busy = sum(self.tasks) / (self.seconds * self.workers)
        middle, longest = statistics.median(self.tasks or [0.0]), max(self.tasks, default=0.0)
        figures = {"seconds": self.seconds, "tasks": len(self.tasks), "median": middle, "longest": longest}
        return {"workers": self.workers, **figures, "busy": f"{busy:.0%}"}


def show_speedup(
    sweep: Callable[[Pool], object],
    executor: str,
    jobs: int | None,
    *,
    places: Sequence[Mapping[str, str]] = (),
    opened: Callable[..., AbstractContextManager[Pool]] = pool,
    as_json: bool,
) -> None:
    """Do it by one worker and by `jobs`, by default one per core, and print what each run took.

    With `places`, GPUs, it is by one of them and by all. `opened` opens a pool.
    """
    if executor.startswith(DASK):
        raise InvalidProblem("--speedup is of this machine: workers of a cluster have caches of their own")
    if len(places) == 1:
        raise InvalidProblem("--speedup is of several GPUs beside one; --gpus names 1")
    counts = ((1, places[:1]), (jobs or len(os.sched_getaffinity(0)), places))
    runs = [_timed(sweep, partial(opened, executor, count, places=where)) for count, where in counts]
    times = runs[0].seconds / runs[1].seconds
    if as_json:
        show_json({"runs": [{**run.row(), "task_seconds": list(run.tasks)} for run in runs], "speedup": times})
        return
    show_table([run.row() for run in runs])
    click.echo(f"{runs[1].workers} workers are {times:.2f} times as fast as one")


def _timed(sweep: Callable[[Pool], object], opened: Callable[[], AbstractContextManager[Pool]]) -> Run:
    with empty_cache(), opened() as within:
        start = time.perf_counter()
        sweep(within)
        return Run(within.workers, time.perf_counter() - start, tuple(within.seconds))


@contextmanager
def empty_cache() -> Iterator[None]:
    """Use a temporary, empty cache in the meantime, and none that machines share."""
    names = "BARACUDA_CACHE_DIR", URL
    before = {name: os.environ[name] for name in names if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="baracuda-cold-") as folder:
        os.environ.update({"BARACUDA_CACHE_DIR": folder, URL: ""})
        try:
            yield
        finally:
            for name in names:
                os.environ.pop(name)
            os.environ.update(before)
