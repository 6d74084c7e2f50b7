"""The check of accesses takes every problem, and notices inputs that check mode is not told of."""

from __future__ import annotations

from typing import Any

import pytest
from repository import SPECS

from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.verify.accesses import check_accesses
from baracuda.checking.verify.suite import check_mode
from baracuda.codegen.spec.load import load_folder


def problem_of(**fields: Any) -> Problem:
    loaded = load_folder(SPECS, ["dense_gemm"])
    subject = Subject(loaded["dense_gemm"], loaded, "baracuda.generated")
    problem = Problem.of(subject, {"batch_size": 1, **fields}, "bf16")
    assert problem is not None
    return problem


@pytest.mark.parametrize("m", [0, 3])
def test_nothing_is_read_where_nothing_is_computed(m: int) -> None:
    with check_mode() as memory:
        check_accesses(problem_of(m=m, n=4, k=8), memory, thoroughly=True)
