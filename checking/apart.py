"""Processes that are given tasks, one at a time each: one that dies, or is not done in time, costs the task it had."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from baracuda.runtime import CompileError

_LONGEST = 400  # characters of what a process said last
_COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from baracuda.checking.apart import main; main()"


Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]  # a function and its arguments


class Lost(CompileError):
    """The worker died that had a task."""


@dataclass(frozen=True)
class Apart:
    """What the processes of a sweep have of their own: environment variables, and seconds that a task may take."""

    variables: tuple[tuple[str, str], ...] = ()
    patience: float | None = None

    @classmethod
    def of(cls, variables: Mapping[str, str], patience: float | None = None) -> Apart:
        return cls(tuple(variables.items()), patience)


class Processes:
    """As many processes as there are tasks at once, each started when it is needed, anew when the last one has died.

    They share a folder for temporary files, which goes with them. `places` are variables of the first processes, one
    each, as for the GPUs that they have.
    """

    def __init__(self, apart: Apart, places: Sequence[Mapping[str, str]] = ()) -> None:
        self._apart, self._stopped, self._lock = apart, False, Lock()
        self._folder = TemporaryDirectory(prefix="baracuda-apart-", ignore_cleanup_errors=True)
        self._all: list[_Process] = []
        self._free = [self._new(place) for place in reversed(places)]

    def do(self, task: Task) -> Any:
        """A function's result, from the process that was free last. Raises what it raises, or Lost."""
        with self._lock:
            if self._stopped:
                raise Lost("the sweep was stopped")
            process = self._free.pop() if self._free else self._new({})
        try:
            return process.ask(task, self._apart.patience)
        finally:
            with self._lock:
                self._free.append(process)

    def close(self) -> None:
        """End them all, with what they have started."""
        with self._lock:
            self._stopped = True
            for process in self._all:
                process.stop()
        self._folder.cleanup()

    def _new(self, place: Mapping[str, str]) -> _Process:
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        variables = {**threads, **dict(self._apart.variables), **place, "TMPDIR": self._folder.name}
        self._all.append(_Process(variables, Path(self._folder.name, f"{len(self._all)}.said")))
        return self._all[-1]


class _Process:
    """A process, which is started by the first task and by the next one when it has ended."""

    def __init__(self, variables: Mapping[str, str], said: Path) -> None:
        self._variables, self._said = variables, said
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped, self._starting = False, Lock()

    def ask(self, task: Task, patience: float | None) -> Any:
        running = self._running or self._start()
        try:
            self._pipe.send(task)
            if not self._pipe.poll(patience):
                self._end(running)
                raise Lost(f"the process that had this task was not done after {patience:g} s{self._last()}")
            failed, value, ends = self._pipe.recv()
        except (EOFError, OSError):
            code = self._end(running)
            raise Lost(f"the process that had this task died with {code}{self._last()}") from None
        if ends:
            self._end(running)
        if failed:
            raise value
        return value

    def stop(self) -> None:
        """End it for good."""
        with self._starting:
            self._stopped, running = True, self._running
        if running is not None:
            self._end(running)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._starting, self._said.open("wb") as said:
            if self._stopped:
                raise Lost("the sweep was stopped")
            self._pipe, there = Pipe()
            path = json.dumps([name or os.getcwd() for name in sys.path])
            self._running = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(there.fileno()), path],
                pass_fds=[there.fileno()],
                env={**os.environ, **self._variables},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # an interrupt from the keyboard is not its
            )
            there.close()  # so that its end is seen here
            return self._running

    def _end(self, running: subprocess.Popen[bytes]) -> int:
        """Kill it with all that it has started, unless it has ended; how it did."""
        if running.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.SIGKILL)
        self._running = None
        return running.wait()

    def _last(self) -> str:
        lines = self._said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"; it said {lines[-1][:_LONGEST]!r}" if lines else ""


_ends = False


def retire() -> None:
    """Have this process end after its task, because it is of no use any more; the next task gets a new one."""
    global _ends
    _ends = True


def main() -> None:
    """Do what comes through a pipe, until its other end is closed."""
    pipe = Connection(int(sys.argv[1]))
    while not _ends:
        try:
            task = pipe.recv_bytes()
        except EOFError:
            return
        try:
            fn, args, kwargs = pickle.loads(task)
            failed, value = False, fn(*args, **kwargs)
        except Exception as error:
            failed, value = True, error
        pipe.send((failed, value, _ends))
