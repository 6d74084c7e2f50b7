"""Invariant: the bound of f32 products holds where a sum has a term or two, and is near what some mantissas reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import memory_of
from baracuda.checking.verify.checks import drawn
from baracuda.codegen.spec.load import load_folder

SPECS = Path(__file__).parents[4] / "specs"


def hard(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers near the middle of two TF32 numbers, whose second parts are largest, and cut off."""
    rng = np.random.default_rng(shape[0])
    below, steps = rng.integers(1, 64, shape, np.uint32), rng.integers(0, 64, shape, np.uint32)
    return (np.uint32(0x3F800000) + (steps << 13) + np.uint32(1 << 12) - below).view(np.float32)


def worst(op: str, case: dict[str, Any], given: dict[str, Any]) -> float:
    loaded = load_folder(SPECS)
    problem = Problem.of(Subject(loaded[op], loaded, "baracuda.generated"), case, "f32")
    return drawn(problem, "normal", given).measure(memory_of("host"))["y"].worst_ratio


@pytest.mark.parametrize("depth", [1, 2])
def test_of_two_arrays(depth: int) -> None:
    case = {"batch_size": 1, "m": 512, "n": 512, "k": depth}
    assert 0.5 < worst("dense_gemm", case, {"a": hard(1, 512, depth), "b": hard(1, depth, 512)}) <= 1


@pytest.mark.parametrize("depth", [1, 2])
def test_of_weights_that_a_pass_makes(depth: int) -> None:
    case = {"tokens": 512, "in_features": depth, "out_features": 64, "group_size": 64}
    scales = np.ones((64, 1), np.float32)
    assert 0.5 < worst("nf4_linear", case, {"x": hard(512, depth), "table": hard(16), "absmax": scales}) <= 1
