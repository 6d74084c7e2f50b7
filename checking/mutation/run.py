"""Judge many mutants in parallel.

A process per kernel or plan forks once per mutant; a mutant of a spec or the runtime is a copy of the checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Lock

from baracuda.runtime import InvalidProblem

from .mutants.kernels import OF_TREES, Mutant
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
    mutants: Sequence[Mutant],
    variables: Mapping[str, str],
    workers: int,
    report: Callable[[Outcome], None],
    trees: Callable[[Mutant], Verdict],
) -> None:
    """Judge all of `mutants`, with `variables` added to the environment; raises when an unchanged target fails.

    `trees` judges those of specs and the runtime.
    """
    lock = Lock()

    def guarded(outcome: Outcome) -> None:
        with lock:
            report(outcome)

    with ThreadPoolExecutor(workers) as pool:
        environment = {**os.environ, **variables, "OPENBLAS_NUM_THREADS": "1"}
        running: list[subprocess.Popen[str]] = []
        jobs = jobs_of([mutant for mutant in mutants if mutant.target not in OF_TREES], workers)
        futures = [pool.submit(_judge, job, environment, running, guarded) for job in jobs]
        alone = (mutant for mutant in mutants if mutant.target in OF_TREES)
        futures += [pool.submit(_judge_tree, mutant, trees, guarded) for mutant in alone]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            for process in list(running):
                process.kill()
            raise


def _judge_tree(mutant: Mutant, trees: Callable[[Mutant], Verdict], report: Callable[[Outcome], None]) -> None:
    start = time.monotonic()
    verdict = trees(mutant)
    report(Outcome(mutant.id, verdict, round(time.monotonic() - start, 2)))


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
