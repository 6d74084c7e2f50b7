"""A process that judges mutants of one kernel or plan, after its unchanged tests have passed.

``python -m baracuda.checking.mutation.worker`` reads a `Job` as JSON and writes an `Outcome` per line, also as JSON;
the environment variables of `verify.chosen` say where specs and plans are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from functools import partial

from baracuda.runtime import REGISTRY, InvalidProblem

from ..oracles.memo import memo
from ..problems.subject import Subject
from ..trials.memory import HostMemory
from ..verify import chosen
from .kernel_trial import KernelBench
from .mutants.kernels import KERNEL, PLAN, Mutant, of_kernels
from .mutants.plans import of_plan
from .plan_trial import PlanBench
from .verdict import SURVIVED, Verdict, judged_apart

LAUNCH_SECONDS = 20.0  # limit of a launch; unchanged kernels take a second at most


@dataclass(frozen=True)
class Job:
    """Mutants of one target of `op`."""

    op: str
    target: str
    mutants: tuple[Mutant, ...]


@dataclass(frozen=True)
class Outcome:
    """A mutant's verdict, and the seconds it took."""

    id: str
    verdict: Verdict
    seconds: float


def mutants_of(subject: Subject, others: Mapping[str, Subject], kinds: Collection[str]) -> list[Mutant]:
    """All mutants of an op's kernels and plan, as far as they are among `kinds`; `others` are all ops."""
    modules = {op: sys.modules[other.plan.__module__] for op, other in others.items()}  # all of them imported
    family = [other for other in others.values() if other.spec.family == subject.spec.family]
    kernels = of_kernels(subject, family) if KERNEL in kinds else ()
    return [*kernels, *(of_plan(subject.spec.op, modules[subject.spec.op]) if PLAN in kinds else ())]


def judge(job: Job, subjects: dict[str, Subject], report: Callable[[Outcome], None]) -> None:
    """Report on each mutant of `job`; raises InvalidProblem if the unchanged target fails its tests."""
    memory = HostMemory()
    memory.device.workers, memory.device.timeout = 1, LAUNCH_SECONDS
    subject = subjects[job.op]
    subject.plan  # noqa: B018  imports it
    row = next((r for r in REGISTRY if r.sku.symbol == job.target), None)
    bench = PlanBench(subject, memory) if row is None else KernelBench(subject, row, memory)
    for mutant in job.mutants:
        start = time.monotonic()
        verdict = _judged(bench, job, mutant)
        report(Outcome(mutant.id, verdict, round(time.monotonic() - start, 2)))


def _judged(bench: KernelBench | PlanBench, job: Job, mutant: Mutant) -> Verdict:
    """Run the quick tests, then the rest; the unchanged target must pass them first."""
    verdict = Verdict(SURVIVED)
    for rest in (False, True):
        if (unchanged := bench.unchanged(rest)).what != SURVIVED:
            why = f"{unchanged.stage}: {unchanged.said}"
            raise InvalidProblem(f"{job.op}: {job.target} does not pass its own tests, so mutants say nothing: {why}")
        verdict = judged_apart(partial(bench.judge, mutant, rest))
        if verdict.what != SURVIVED:
            break
    return verdict


def main() -> None:
    op, target, mutants = json.load(sys.stdin).values()
    job = Job(op, target, tuple(Mutant(**mutant) for mutant in mutants))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # tests print to stderr

    def report(outcome: Outcome) -> None:
        answers.write(json.dumps(asdict(outcome)) + "\n")
        answers.flush()

    with memo():
        judge(job, {s.spec.op: s for s in chosen.subjects()}, report)


if __name__ == "__main__":
    main()
