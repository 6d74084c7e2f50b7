"""Judge the mutants of a plan."""

from __future__ import annotations

import sys
from functools import cache

from ..problems.subject import Subject
from ..trials.memory import HostMemory
from ..verify import chosen
from . import stages
from .mutants.kernels import Mutant
from .mutants.plans import put_in_place, source_of
from .mutants.targets import representatives
from .verdict import KILLED, Verdict, first_objection, in_one_line


class PlanBench:
    """Runs the tests of an op and of its representative kernels with its plan, mutated or not."""

    def __init__(self, subject: Subject, memory: HostMemory) -> None:
        self.module = sys.modules[subject.plan.__module__]
        self.stages = stages.of_plan(subject, [row.sku for row in representatives(subject)], memory)

    @cache  # noqa: B019  one bench per process
    def unchanged(self, rest: bool) -> Verdict:
        """The verdict on the unchanged plan."""
        return first_objection(self.stages[rest])

    def judge(self, mutant: Mutant, rest: bool) -> Verdict:
        """Replace the plan with a mutant and run its tests; only in a forked child."""
        try:
            put_in_place(self.module.__name__, mutant.apply(source_of(self.module)[1]))
        except Exception as error:  # the mutant cannot be imported
            return Verdict(KILLED, "import", in_one_line(error))
        chosen.problems_of.cache_clear()
        return first_objection(self.stages[rest])
