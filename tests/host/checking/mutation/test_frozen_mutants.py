"""Mutants that a check of the suite has been seen to kill, one by one: it still kills them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from repository import SPECS, frozen_defects

from baracuda.checking.mutation import kernel_trial, plan_trial, stages, verdict
from baracuda.checking.mutation.mutants.kernels import Mutant
from baracuda.checking.mutation.mutants.plans import source_of
from baracuda.checking.mutation.mutants.targets import pasted
from baracuda.checking.mutation.worker import LAUNCH_SECONDS
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import HostMemory
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import REGISTRY

MUTANTS = frozen_defects()["mutants"]


def mutant_of(frozen: dict[str, str], text: str) -> Mutant:
    """The frozen mutant, at the first such line of `text`."""
    lines = text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if line.strip() == frozen["line"]]
    assert numbers, f"no line {frozen['line']!r} in {frozen['target']} of {frozen['op']}; write the defect anew"
    start = sum(map(len, lines[: numbers[0]])) + lines[numbers[0]].index(frozen["before"])
    return Mutant(frozen["op"], frozen["target"], "", "", 0, frozen["line"], start, frozen["before"], frozen["after"])


def only(stages: tuple[list[stages.Stage], list[stages.Stage]], name: str) -> list[stages.Stage]:
    return [stage for part in stages for stage in part if stage.name == name]


@pytest.mark.parametrize("frozen", MUTANTS, ids=lambda one: f"{one['op']}: {one['before']}")
def test_it_is_killed(frozen: dict[str, str]) -> None:
    loaded = load_folder(SPECS)
    subject, memory = Subject(loaded[frozen["op"]], loaded, "baracuda.generated"), HostMemory()
    memory.device.timeout = LAUNCH_SECONDS
    judge: Any
    if frozen["target"] == "plan":
        trial = plan_trial.PlanBench(subject, memory)
        trial.stages = only(trial.stages, frozen["caught"]), []
        mutant = mutant_of(frozen, source_of(sys.modules[subject.plan.__module__])[1])
        before, judge = trial.unchanged(False), lambda: trial.judge(mutant, False)
    else:
        subject.plan  # noqa: B018  registers the kernels
        row = next(row for row in REGISTRY if row.sku.symbol == frozen["target"])
        checks = only(stages.of_kernel(subject, row.sku, memory), frozen["caught"])
        text = pasted(row)
        mutant = mutant_of(frozen, text)

        def judge(text: str = mutant.apply(text)) -> verdict.Verdict:
            with kernel_trial.instead_of(memory.device, row, text):
                return verdict.first_objection(checks)

        before = judge(text)
    assert before.what == verdict.SURVIVED, f"the unchanged text does not pass: {before.said}"
    after = verdict.judged_apart(judge)
    assert after.what == verdict.KILLED, f"nobody noticed: {frozen}"
