"""Where the tasks of a sweep run: in threads or processes of this machine, or on the workers of a Dask cluster.

All are `concurrent.futures` executors. Tasks compute and return; who sweeps keeps their results, so that a run that
was interrupted goes on and caches on other machines do not matter. A worker that dies fails the task it had. Tasks that
may crash, hang or spoil their process are in one apart, here and on the workers of a cluster.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from secrets import token_hex
from threading import Lock
from typing import Any, TypeVar

from baracuda.codegen.project import installed
from baracuda.runtime import DriverError, InvalidProblem, Unsupported
from baracuda.runtime.compile.cubin import nvrtc_build, nvrtc_version

from .apart import Apart, Lost, Processes, Task
from .result_file import digest_of

THREADS, PROCESSES, DASK = "threads", "processes", "dask://"
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Pool:
    """An executor, how many tasks it runs at once, and the seconds that each has taken."""

    executor: Executor
    workers: int
    seconds: list[float] = field(default_factory=list)


@contextmanager
def pool(
    where: str = THREADS,
    jobs: int | None = None,
    *,
    apart: Apart | None = None,
    places: Sequence[Mapping[str, str]] = (),
    alike: Callable[[], str] | None = None,
    alone: bool = False,
) -> Iterator[Pool]:
    """The executor that `where` names; `jobs` is the number of workers of this machine, by default one per core.

    With `apart`, every task is in a process of its own kind, and threads are none. `places` are variables of such
    processes, one each. `alike` is what results depend on beside the task, which is to be the same on all machines.
    `alone`, a worker of a cluster has one task at a time, as whoever takes times needs it.
    """
    known = (PROCESSES,) if apart else (THREADS, PROCESSES)
    count = len(places) or jobs or len(os.sched_getaffinity(0))
    if where.startswith(DASK):
        if places:
            raise InvalidProblem(f"GPUs are chosen for workers of this machine, those of {where} have their own")
        with _cluster(where.removeprefix(DASK), apart, alike or _identity, alone) as cluster:
            yield cluster
        return
    if where not in known:
        raise InvalidProblem(f"no executor {where!r} for this; known are {', '.join(known)} and {DASK}HOST:PORT")
    executor = _Apart(count, apart or Apart(), places) if where == PROCESSES else _Clocked(count)
    try:
        yield Pool(executor, count, executor.seconds)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def each(within: Pool, fn: Callable[[T], R], tasks: deque[T]) -> Iterator[tuple[T, R | Lost]]:
    """What `fn` gives for each task, as it is done, or that its worker was lost; any other error ends the sweep.

    No more are given out than there are workers: those that are put into `tasks` meanwhile are done, too.
    """
    running: dict[Future[R], T] = {}
    ready: SimpleQueue[Future[R]] = SimpleQueue()
    while tasks or running:
        while tasks and len(running) < within.workers:
            future = within.executor.submit(fn, tasks[0])
            running[future] = tasks.popleft()
            future.add_done_callback(ready.put)
        done = ready.get()
        error = done.exception()
        yield running.pop(done), error if isinstance(error, Lost) else done.result()


class _Clocked(ThreadPoolExecutor):
    """Threads that note how long each task takes."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.seconds: list[float] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._clocked, (fn, args, kwargs))

    def _clocked(self, task: Task) -> Any:
        start = time.perf_counter()
        try:
            return self._do(task)
        finally:
            self.seconds.append(time.perf_counter() - start)

    def _do(self, task: Task) -> Any:
        fn, args, kwargs = task
        return fn(*args, **kwargs)


class _Apart(_Clocked):
    """Threads that give their tasks to processes."""

    def __init__(self, workers: int, apart: Apart, places: Sequence[Mapping[str, str]]) -> None:
        super().__init__(workers)
        self._processes = Processes(apart, places)

    def _do(self, task: Task) -> Any:
        return self._processes.do(task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        self._processes.close()


@contextmanager
def _cluster(address: str, apart: Apart | None, alike: Callable[[], str], alone: bool) -> Iterator[Pool]:
    """The workers of the Dask scheduler at an address, which have this package installed."""
    try:
        from distributed import Client
    except ImportError:
        raise Unsupported("distributed is not installed; pip install 'baracuda-gen[dask]'") from None
    try:
        client = Client(f"tcp://{address}", timeout=_PATIENCE)
    except OSError as error:
        raise DriverError(f"no Dask scheduler answers at {address}: {error}; start 'dask scheduler' there") from error
    with client:
        by_worker = client.nthreads()
        if not (threads := sum(by_worker.values())):
            raise DriverError(f"the Dask scheduler at {address} has no workers; start 'dask worker {address}'")
        if alone and (crowded := max(by_worker, key=by_worker.__getitem__)) and by_worker[crowded] > 1:
            needs = f"start 'dask worker {address} --nthreads 1' for each GPU"
            raise DriverError(f"the Dask worker {crowded} does {by_worker[crowded]} tasks at once; needs 1, so {needs}")
        ours = alike()
        for worker, theirs in client.run(alike).items():
            if theirs != ours:
                raise DriverError(f"the Dask worker {worker} has {theirs}; needs {ours}, as this machine has")
        sweep = token_hex(8)
        executor = _OfCluster(client.get_executor(), threads, (sweep, apart) if apart else None)
        try:
            yield Pool(executor, threads, executor.seconds)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            client.run(_leave, sweep)


def _identity() -> str:
    """What compiling depends on beside the task: our sources, and the compiler."""
    sources = digest_of(map(installed, ("baracuda.checking", "baracuda.runtime")))
    return f"sources {sources} and NVRTC {nvrtc_version()} ({nvrtc_build()})"


_PATIENCE = 10.0  # seconds for a scheduler to answer


class _OfCluster(_Clocked):
    """Dask's executor, which is given as many tasks at once as its workers have threads: those that wait at a worker
    count as tasks that it died of. What workers died of in several attempts is lost.
    """

    def __init__(self, executor: Executor, threads: int, sweep: tuple[str, Apart] | None) -> None:
        super().__init__(threads)
        self._inner, self._sweep = executor, sweep

    def _do(self, task: Task) -> Any:
        fn, args, kwargs = task
        try:
            if self._sweep:
                return self._inner.submit(_there, *self._sweep, task).result()
            return self._inner.submit(fn, *args, **kwargs).result()
        except Exception as error:
            if type(error).__name__ == "KilledWorker":
                raise Lost(str(error)) from None
            raise


_sweeps: dict[str, Processes] = {}  # of the sweeps that this worker of a cluster takes part in
_gone: set[str] = set()
_coming = Lock()


def _there(sweep: str, apart: Apart, task: Task) -> Any:
    """At a worker of a cluster: do a task in one of the processes that it has for a sweep."""
    with _coming:
        if sweep in _gone:
            raise Lost("the sweep was stopped")
        processes = _sweeps[sweep] = _sweeps.get(sweep) or Processes(apart)
    return processes.do(task)


def _leave(sweep: str) -> None:
    with _coming:
        _gone.add(sweep)
        processes = _sweeps.pop(sweep, None)
    if processes:
        processes.close()
