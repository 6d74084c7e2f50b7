"""Judging many problems at a time: processes that take one after another; one that dies fails the problem it had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event, Lock, Timer
from typing import Any

from baracuda.runtime import InvalidProblem

from .judge import Outcome
from .state import Key, outcome_of

_COMMAND = [sys.executable, "-m", "baracuda.codegen.compare.worker"]
_PATIENCE = 900  # seconds for one problem, compilation included


def run(
    work: Sequence[Key],
    given: Mapping[str, Any],
    workers: int,
    report: Callable[[Outcome], None],
    variables: Mapping[str, str],
) -> None:
    """Judge all of `work`; `given` tells the processes what the worker module reads, `variables` are for them."""
    queue: SimpleQueue[Key] = SimpleQueue()
    for key in work:
        queue.put(key)
    lock, stopped, running = Lock(), Event(), list[subprocess.Popen[str]]()

    def guarded(outcome: Outcome) -> None:
        with lock:
            report(outcome)

    around = {**os.environ, **variables, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    count = min(workers, len(work))
    with ThreadPoolExecutor(max(1, count)) as pool:
        futures = [pool.submit(_serve, queue, given, around, guarded, stopped, running) for _ in range(count)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            stopped.set()
            for process in running:
                process.kill()
            raise


def _serve(
    queue: SimpleQueue[Key],
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    report: Callable[[Outcome], None],
    stopped: Event,
    running: list[subprocess.Popen[str]],
) -> None:
    """Have processes judge, a new one when the last one has died, until nothing is left to do."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": dict(environment)}
    pipes["start_new_session"] = True  # an interrupt from the keyboard is not theirs
    while not stopped.is_set():
        with (
            tempfile.TemporaryFile("w+", errors="replace") as said,
            subprocess.Popen(_COMMAND, stderr=said, **pipes) as process,
        ):
            running.append(process)
            try:
                if _feed(process, queue, given, report, said, stopped):
                    return
            finally:
                process.kill()
                running.remove(process)


def _feed(
    process: subprocess.Popen[str],
    queue: SimpleQueue[Key],
    given: Mapping[str, Any],
    report: Callable[[Outcome], None],
    said: Any,
    stopped: Event,
) -> bool:
    """Give one process work while it lives; say whether there is none left."""
    if _ask(process, given) is None:
        raise InvalidProblem(f"a process to compare in did not start; it said {_last(said)!r}")
    while not stopped.is_set():
        try:
            op, index = queue.get_nowait()
        except Empty:
            return True
        found = _ask(process, {"op": op, "index": index})
        if found is None and stopped.is_set():
            return True
        outcome = outcome_of(found) if found is not None else _died(op, index, process, said)
        report(outcome)
        if found is None or outcome.fatal:
            return False
    return True


def _ask(process: subprocess.Popen[str], question: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to a line of JSON, or None when the process has died, of impatience for one."""
    assert process.stdin is not None and process.stdout is not None
    impatient = Timer(_PATIENCE, process.kill)
    impatient.start()
    try:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        return None
    finally:
        impatient.cancel()
    return json.loads(line) if line.endswith("\n") else None


def _died(op: str, index: int, process: subprocess.Popen[str], said: Any) -> Outcome:
    return Outcome(op, index, failure=f"the process died with {process.wait()}; it said {_last(said)!r}", fatal=True)


def _last(said: Any) -> str:
    said.seek(0)
    return str((said.read().strip().splitlines() or ["nothing"])[-1])
