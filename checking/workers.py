"""Many questions put to a crew of processes: each takes one after another; one that dies fails the question it had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock, Timer
from typing import Any

from baracuda.runtime import InvalidProblem

_LONGEST = 400  # characters of what a process said last
Question = Mapping[str, Any]
Answer = dict[str, Any]


def _command(module: str) -> list[str]:
    return [sys.executable, "-m", module]


@dataclass
class Crew:
    """Processes that run a `module`: it reads lines of JSON, first the `setup` that all work shares, and answers each.

    `report` gets each question with its answer, or with None and how the process died; it returns whether the process
    is still of use. It is called by one thread at a time. A question may take `patience` seconds.
    """

    module: str
    setup: Question
    report: Callable[[Question, Answer | None, str], bool]
    variables: Mapping[str, str] = field(default_factory=dict)
    patience: float = 900.0

    def __post_init__(self) -> None:
        self._asking, self._reporting, self._stopped = Lock(), Lock(), Event()
        self._running: list[subprocess.Popen[str]] = []

    def work(self, questions: Iterable[Question], workers: int) -> None:
        """Have all questions answered."""
        self._left = iter(questions)
        with ThreadPoolExecutor(max(1, workers)) as pool:
            futures = [pool.submit(self._serve) for _ in range(max(1, workers))]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stopped.set()
                for process in self._running:
                    process.kill()
                raise

    def _next(self) -> Question | None:
        with self._asking:
            return next(self._left, None)

    def _serve(self) -> None:
        """Keep a process at work, a new one when the last one has died, until nothing is left to do."""
        around = {**os.environ, **self.variables, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": around}
        pipes["start_new_session"] = True  # an interrupt from the keyboard is not theirs
        question = self._next()
        while question is not None and not self._stopped.is_set():
            with (
                tempfile.TemporaryFile("w+", errors="replace") as stderr,
                subprocess.Popen(_command(self.module), stderr=stderr, **pipes) as process,
            ):
                self._running.append(process)
                try:
                    question = self._feed(process, question, stderr)
                finally:
                    process.kill()
                    self._running.remove(process)

    def _feed(self, process: subprocess.Popen[str], question: Question | None, stderr: Any) -> Question | None:
        """Give one process work while it lives; return the question that is to be asked of the next one."""
        if self._ask(process, self.setup) is None:
            raise InvalidProblem(f"a process of {self.module} did not start; it said {_last(stderr)!r}")
        useful = True
        while useful and question is not None and not self._stopped.is_set():
            answer = self._ask(process, question)
            if answer is None and self._stopped.is_set():
                return None
            death = "" if answer is not None else f"the process died with {process.wait()}; it said {_last(stderr)!r}"
            with self._reporting:
                useful = self.report(question, answer, death) and answer is not None
            question = self._next()
        return question

    def _ask(self, process: subprocess.Popen[str], question: Question) -> Answer | None:
        """The answer to a line of JSON, or None when the process has died, of impatience for one."""
        assert process.stdin is not None and process.stdout is not None
        impatient = Timer(self.patience, process.kill)
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


def _last(stderr: Any) -> str:
    stderr.seek(0)
    return str((stderr.read().strip().splitlines() or ["nothing"])[-1])[:_LONGEST]
