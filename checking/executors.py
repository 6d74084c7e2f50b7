"""Where the tasks of a sweep run: in threads or processes of this machine, or on the workers of a Dask cluster.

All are `concurrent.futures` executors. Tasks compute and return; who sweeps keeps their results, so that a run that
was interrupted goes on and caches on other machines do not matter. A worker that dies fails the task it had.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from baracuda.codegen.project import installed
from baracuda.runtime import CompileError, DriverError, InvalidProblem, Unsupported
from baracuda.runtime.compile.cubin import nvrtc_build, nvrtc_version

from .result_file import digest_of

THREADS, PROCESSES, DASK = "threads", "processes", "dask://"


class Lost(CompileError):
    """The worker died that was to compile a kernel."""


@dataclass(frozen=True)
class Pool:
    """An executor, and how many tasks it runs at once."""

    executor: Executor
    workers: int


@contextmanager
def pool(where: str = THREADS, jobs: int | None = None) -> Iterator[Pool]:
    """The executor that `where` names; `jobs` is the number of workers of this machine, by default one per core."""
    count = jobs or len(os.sched_getaffinity(0))
    if where.startswith(DASK):
        with _cluster(where.removeprefix(DASK)) as cluster:
            yield cluster
        return
    if where not in (THREADS, PROCESSES):
        raise InvalidProblem(f"no executor {where!r}; known are {THREADS}, {PROCESSES} and {DASK}HOST:PORT")
    executor = Processes(count) if where == PROCESSES else ThreadPoolExecutor(count)
    try:
        yield Pool(executor, count)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


class Processes(Executor):
    """So many processes, each started when there is a task for it, and anew for the next task when it has died."""

    def __init__(self, workers: int) -> None:
        self._threads, self._own = ThreadPoolExecutor(workers), threading.local()
        self._running: set[Any] = set()
        self._starting, self._stopped = threading.Lock(), False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._threads.submit(self._asked, (fn, args, kwargs))

    def _asked(self, task: Any) -> Any:
        process, pipe = self._worker()
        try:
            pipe.send(task)
            failed, value = pipe.recv()
        except (EOFError, OSError):
            process.join()
            self._running.discard(process)
            del self._own.worker
            raise Lost(f"the process that had this task died with {process.exitcode}") from None
        if failed:
            raise value
        return value

    def _worker(self) -> Any:
        """The process of this thread, and the pipe to it."""
        if not hasattr(self._own, "worker"):
            here, there = multiprocessing.get_context("spawn").Pipe()
            process = multiprocessing.get_context("spawn").Process(target=_answer, args=(there,), daemon=True)
            with self._starting:
                if self._stopped:
                    raise Lost("the sweep was stopped")
                process.start()
                self._running.add(process)
            there.close()  # so that its end is seen here
            self._own.worker = process, here
        return self._own.worker

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        with self._starting:
            self._stopped = True
            for process in self._running:
                process.kill()


def _answer(pipe: Any) -> None:
    """Do what comes through a pipe, until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the keyboard is not its
    while True:
        try:
            fn, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            answer = False, fn(*args, **kwargs)
        except Exception as error:
            answer = True, error
        pipe.send(answer)


@contextmanager
def _cluster(address: str) -> Iterator[Pool]:
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
        if not (threads := sum(client.nthreads().values())):
            raise DriverError(f"the Dask scheduler at {address} has no workers; start 'dask worker {address}'")
        ours = _identity()
        for worker, theirs in client.run(_identity).items():
            if theirs != ours:
                raise DriverError(f"the Dask worker {worker} has {theirs}; needs {ours}, as this machine has")
        executor = _OfCluster(client.get_executor(), threads)
        try:
            yield Pool(executor, threads)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def _identity() -> str:
    """What results depend on beside the task: our sources, and the compiler."""
    sources = digest_of(map(installed, ("baracuda.checking", "baracuda.runtime")))
    return f"sources {sources} and NVRTC {nvrtc_version()} ({nvrtc_build()})"


_PATIENCE = 10.0  # seconds for a scheduler to answer


class _OfCluster(ThreadPoolExecutor):
    """Dask's executor, which is given as many tasks at once as its workers have threads: those that wait at a worker
    count as tasks that it died of. What workers died of in several attempts is lost.
    """

    def __init__(self, executor: Executor, threads: int) -> None:
        super().__init__(threads)
        self._inner = executor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._asked, fn, args, kwargs)

    def _asked(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            return self._inner.submit(fn, *args, **kwargs).result()
        except Exception as error:
            if type(error).__name__ == "KilledWorker":
                raise Lost(str(error)) from None
            raise
