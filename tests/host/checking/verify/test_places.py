"""Invariant: a row whose bits depend on its place in a batch is seen, at whichever place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda.checking.problems.problem import Arrays, Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import HostMemory
from baracuda.checking.variables import SAMPLE
from baracuda.checking.verify import invariance
from baracuda.codegen.project import installed
from baracuda.codegen.spec.load import load_folder


def problem(rows: int) -> Problem:
    loaded = load_folder(installed("baracuda.specs"), ["softmax"])
    subject = Subject(loaded["softmax"], loaded, "baracuda.generated")
    return Problem.of(subject, {"input_shape": [rows, 8], "softmax_axis": 1}, "f32")


class Placed:
    """Computes rows of which that at one place of a whole batch is another."""

    def __init__(self, arrays: Arrays, wrong: int) -> None:
        self.x, self.wrong = arrays["x"], wrong

    def run(self, *_: object) -> Arrays:
        y = self.x * 2
        if len(y) == 6:
            y[self.wrong] += 1
        return {"y": y}


@pytest.mark.parametrize("wrong", range(6))
def test_a_row_that_depends_on_its_place_is_seen(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    monkeypatch.delenv(SAMPLE, raising=False)
    monkeypatch.setattr(invariance, "arrange", lambda _problem, arrays, _memory: Placed(arrays, wrong))
    says = f"'y' has other bits in a batch of 3, the part from {max(0, wrong - 2)} on"
    with pytest.raises(AssertionError, match=says):
        invariance.check_batch_invariance(problem(6), HostMemory())


def test_a_sampled_run_takes_places_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SAMPLE, "0")
    whole: list[Any] = [problem(rows) for rows in (6, 8, 10, 12, 20, 40)]
    places = [invariance._places(one, one.with_batch(one.batch // 2)) for one in whole]
    assert all(len(of_one) == 1 for of_one in places) and len({of_one[0] for of_one in places}) > 2
    monkeypatch.delenv(SAMPLE)
    places = [invariance._places(one, one.with_batch(one.batch // 2)) for one in whole]
    assert places[0] == [0, 1, 2, 3] and (len(places[-1]), places[-1][0], places[-1][-1]) == (17, 0, 20)


def test_a_part_begins_at_its_place_along_the_batch_alone() -> None:
    whole = np.arange(24).reshape(6, 4)
    third = invariance.Fraction(1, 3)
    assert (invariance._from(whole, (3, 4), third) == whole[1:4]).all()
    assert (invariance._from(whole, (6, 4), third) == whole).all()
    assert invariance._from(np.array(5.0), (), third) == 5.0
