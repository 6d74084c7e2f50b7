"""Judge many mutants in parallel: a process per kernel or plan, which forks once per mutant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Lock

from baracuda.runtime import InvalidProblem

from .mutants.kernels import Mutant
from .verdict import Verdict
from .worker import Job, Outcome

_AT_LEAST = 40  # mutants per job: each job tests the unchanged target first


def jobs_of(mutants: Sequence[Mutant], workers: int) -> list[Job]:
    """The mutants by target in jobs of similar size, the largest first."""
    by_target: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        by_target.setdefault((mutant.op, mutant.target), []).append(mutant)
    size = max(_AT_LEAST, -(-len(mutants) // (4 * workers)))
    jobs = []
    for (op, target), of_target in by_target.items():
        parts = max(1, round(len(of_target) / size))
        jobs += [Job(op, target, tuple(of_target[part::parts])) for part in range(parts)]
    return sorted(jobs, key=lambda job: -len(job.mutants))


def run(
    mutants: Sequence[Mutant], variables: Mapping[str, str], workers: int, report: Callable[[Outcome], None]
) -> None:
    """Judge all of `mutants`, with `variables` added to the environment; raises when an unchanged target fails."""
    lock = Lock()

    def guarded(outcome: Outcome) -> None:
        with lock:
            report(outcome)

    with ThreadPoolExecutor(workers) as pool:
        environment = {**os.environ, **variables, "OPENBLAS_NUM_THREADS": "1"}
        running: list[subprocess.Popen[str]] = []
        futures = [pool.submit(_judge, job, environment, running, guarded) for job in jobs_of(mutants, workers)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            for process in list(running):
                process.kill()
            raise


def _judge(
    job: Job, environment: Mapping[str, str], running: list[subprocess.Popen[str]], report: Callable[[Outcome], None]
) -> None:
    command = [sys.executable, "-m", "baracuda.checking.mutation.worker"]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as stderr,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, text=True, env=dict(environment)) as process,
    ):
        running.append(process)
        assert process.stdin is not None and process.stdout is not None
        json.dump(asdict(job), process.stdin)
        process.stdin.close()
        missing = {mutant.id for mutant in job.mutants}
        for line in process.stdout:
            record = json.loads(line)
            missing.discard(record["id"])
            report(Outcome(**{**record, "verdict": Verdict(**record["verdict"])}))
        running.remove(process)
        if missing:
            stderr.seek(0)
            last = stderr.read().strip().splitlines()[-1:] or ["nothing"]
            raise InvalidProblem(f"{job.target} of {job.op} was not judged to the end; it said {last[0]!r}")
