"""Judging the mutants of a plan."""

from __future__ import annotations

import sys
from functools import cache

from ..problems.subject import Subject
from ..trials.memory import HostMemory
from ..verify import suite
from . import stages
from .mutants.kernels import Mutant, representatives
from .mutants.plans import put_in_place, source_of
from .verdict import KILLED, Verdict, first_objection, in_one_line


class PlanBench:
    """Runs the tests of an op, and those of its representative kernels, on its plan, mutated or not."""

    def __init__(self, subject: Subject, memory: HostMemory) -> None:
        self.module = sys.modules[subject.plan.__module__]
        self.stages = stages.of_plan(subject, [row.sku for row in representatives(subject.spec.op)], memory)

    @cache  # noqa: B019  there is one bench to a process
    def unchanged(self, rest: bool) -> Verdict:
        """What the tests say of the plan as it is."""
        return first_objection(self.stages[rest])

    def judge(self, mutant: Mutant, rest: bool) -> Verdict:
        """Put the mutated plan in place of the plan; only a forked child may do so."""
        try:
            put_in_place(self.module.__name__, mutant.apply(source_of(self.module)[1]))
        except Exception as error:  # what a mutant cannot even be imported for
            return Verdict(KILLED, "import", in_one_line(error))
        suite.problems_of.cache_clear()
        return first_objection(self.stages[rest])
