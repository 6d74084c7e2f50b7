"""Invariant: where the oracle sees an element is where the caller's array has it; random problems have all fields."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from repository import ROOT

from baracuda.checking.problems.cases import drawn_cases
from baracuda.checking.problems.map import MapProblem
from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.codegen.spec.load import load_folder

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "softmax": ({"input_shape": (5, 4, 3), "softmax_axis": 1}, "y"),
    "rms_norm": ({"input_shape": (5, 4, 3), "norm_axes_mask": 0b110, "eps": 1e-6, "has_gamma": True}, "rms"),
    "repeat": ({"input_shape": (2, 3), "repeats": (3, 2)}, "y"),
}


@pytest.mark.parametrize("op", CASES)
def test_an_index_is_that_of_the_callers_array(op: str) -> None:
    loaded = load_folder(ROOT / "specs")
    values, name = CASES[op]
    problem = Problem.of(Subject(loaded[op], loaded, "baracuda.generated"), values, "f32")
    shape = problem.shape_of(name)
    array = np.arange(np.prod(shape)).reshape(shape)
    flat = problem.flat(name, array)
    for index in np.ndindex(flat.shape):
        assert array[problem.index_of(name, index)] == flat[index]


@pytest.mark.parametrize(("shape", "batch"), [((2, 3), 2), ((0, 3), 0), ((), None)])
def test_a_shape_of_rank_0_has_no_batch(shape: tuple[int, ...], batch: int | None) -> None:
    seen = SimpleNamespace(spec=SimpleNamespace(tests=SimpleNamespace(batch="shape")), values={"shape": shape})
    assert MapProblem.batch.__get__(seen) == batch


FIELD = """\
op: lifted
doc: Values above a field.
descriptor: {count: {type: int, doc: cells}, least: {type: int, doc: added to each}}
dims: {cell: count}
inputs: [x]
outputs: [y]
program: y = x + least
tests: {cases: [{count: 3, least: 7}, {count: 40, least: -2}]}
"""


def test_random_problems_have_listed_values_of_what_nothing_draws(tmp_path: Path) -> None:
    (tmp_path / "lifted.yaml").write_text(FIELD, encoding="utf-8")
    loaded = load_folder(tmp_path)
    cases = list(drawn_cases(Subject(loaded["lifted"], loaded, "a"), np.random.default_rng(0), tries=40))
    assert {case["least"] for case in cases} == {7, -2} and len({case["count"] for case in cases}) > 5
