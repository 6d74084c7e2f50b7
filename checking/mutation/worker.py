"""The task of a sweep: mutants of one kernel or plan, after its unchanged tests have passed, or a mutant of a tree.

It is done in a process apart, which forks once per mutant. The environment variables of `verify.chosen` say where specs
and plans are.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from baracuda.codegen.project import installed
from baracuda.runtime import REGISTRY, InvalidProblem

from ..apart import Lost
from ..executors import Pool, each
from ..oracles.memo import memo
from ..problems.subject import Subject
from ..trials.memory import HostMemory
from ..variables import SPECS
from ..verify import chosen
from .kernel_trial import KernelBench
from .mutant_trial import TreeBench
from .mutants.kernels import KERNEL, OF_TREES, PLAN, Mutant, of_kernels
from .mutants.plans import of_plan
from .plan_trial import PlanBench
from .verdict import SURVIVED, Outcome, Verdict, judged_apart

LAUNCH_SECONDS = 20.0  # limit of a launch; unchanged kernels take a second at most
_AT_LEAST = 40  # mutants per job: each job tests the unchanged target first
_AT_ONCE = 60.0  # seconds after which a job gives what it has


@dataclass(frozen=True)
class Job:
    """Mutants of one target of `op`."""

    op: str
    target: str
    mutants: tuple[Mutant, ...]


def mutants_of(subject: Subject, others: Mapping[str, Subject], kinds: Collection[str]) -> list[Mutant]:
    """All mutants of an op's kernels and plan, as far as they are among `kinds`; `others` are all ops."""
    modules = {op: sys.modules[other.plan.__module__] for op, other in others.items()}  # all of them imported
    family = [other for other in others.values() if other.spec.family == subject.spec.family]
    kernels = of_kernels(subject, family) if KERNEL in kinds else ()
    return [*kernels, *(of_plan(subject.spec.op, modules[subject.spec.op]) if PLAN in kinds else ())]


def jobs_of(mutants: Sequence[Mutant], workers: int) -> list[Job]:
    """The mutants by target in jobs of similar size, the largest first, then those of trees, each alone."""
    by_target: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        if mutant.target not in OF_TREES:
            by_target.setdefault((mutant.op, mutant.target), []).append(mutant)
    size = max(_AT_LEAST, -(-len(mutants) // (4 * workers)))
    jobs = []
    for (op, target), of_target in by_target.items():
        parts = max(1, round(len(of_target) / size))
        jobs += [Job(op, target, tuple(of_target[part::parts])) for part in range(parts)]
    alone = [Job(mutant.op, mutant.target, (mutant,)) for mutant in mutants if mutant.target in OF_TREES]
    return sorted(jobs, key=lambda job: -len(job.mutants)) + alone


def run(mutants: Sequence[Mutant], within: Pool, report: Callable[[Outcome], None]) -> None:
    """Judge all of `mutants`; raises when an unchanged target fails, or at the end for those whose process was lost."""
    jobs, lost = deque(jobs_of(mutants, within.workers)), list[str]()
    for job, done in each(within, judge, jobs):
        if isinstance(done, Lost):
            lost.append(f"{job.target} of {job.op} was not judged to the end: {done}")
            continue
        for outcome in done:
            report(outcome)
        if left := job.mutants[len(done) :]:
            jobs.appendleft(Job(job.op, job.target, left))  # most likely to the process that is prepared for it
    if lost:
        raise InvalidProblem("\n".join(lost))


def judge(job: Job) -> list[Outcome]:
    """The outcomes of the first mutants of a job, of as many as a minute is enough for.

    Raises InvalidProblem if the unchanged target fails its tests.
    """
    outcomes, began = list[Outcome](), time.monotonic()
    with memo():
        for mutant in job.mutants:
            start = time.monotonic()
            verdict = _trees().judge(mutant) if job.target in OF_TREES else _judged(job, mutant)
            outcomes.append(Outcome(mutant.id, verdict, round(time.monotonic() - start, 2)))
            if time.monotonic() - began > _AT_ONCE:
                break
    return outcomes


def _judged(job: Job, mutant: Mutant) -> Verdict:
    """Run the quick tests, then the rest; the unchanged target must pass them first."""
    bench, verdict = _bench(job.op, job.target), Verdict(SURVIVED)
    for rest in (False, True):
        if (unchanged := bench.unchanged(rest)).what != SURVIVED:
            why = f"{unchanged.stage}: {unchanged.said}"
            raise InvalidProblem(f"{job.op}: {job.target} does not pass its own tests, so mutants say nothing: {why}")
        verdict = judged_apart(partial(bench.judge, mutant, rest))
        if verdict.what != SURVIVED:
            break
    return verdict


@lru_cache(maxsize=1)
def _bench(op: str, target: str) -> KernelBench | PlanBench:
    memory = HostMemory()
    memory.device.workers, memory.device.timeout = 1, LAUNCH_SECONDS
    subject = _subjects()[op]
    subject.plan  # noqa: B018  imports it
    row = next((r for r in REGISTRY if r.sku.symbol == target), None)
    return PlanBench(subject, memory) if row is None else KernelBench(subject, row, memory)


@lru_cache(maxsize=1)
def _trees() -> TreeBench:
    root = installed("baracuda.runtime").resolve().parent
    return TreeBench(root, _subjects(), {SPECS: ""})  # a tree has its own


def _subjects() -> dict[str, Subject]:
    return {subject.spec.op: subject for subject in chosen.subjects()}
