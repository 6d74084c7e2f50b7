"""Invariant: where the oracle sees an element is where the caller's array has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from repository import ROOT

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
