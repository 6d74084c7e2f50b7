"""A kernel's errors against the oracle, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baracuda.codegen.spec.load import Loaded
from baracuda.runtime import ElementKind

from ..problems.problem import Problem
from ..problems.subject import Subject
from .accuracy import Accuracy, as_float, compare
from .oracle import reference, tolerances, widen

__all__ = ["Accuracy", "report"]


def report(
    op: Loaded,
    loaded: Mapping[str, Loaded],
    arrays: Mapping[str, np.ndarray[Any, Any]],
    outputs: Mapping[str, np.ndarray[Any, Any]],
    values: Mapping[str, Any],
    element: ElementKind | str,
    package: str = "baracuda.generated",
) -> dict[str, Accuracy]:
    """Compare `outputs` of the plan of `op` for the inputs `arrays` with the float64 oracle and the declared bound.

    All are in the caller's shapes; saved tensors are as the kernel got them.
    """
    problem = Problem.of(Subject(op, loaded, package), values, element)
    exact = reference(problem, widen(problem, {n: a for n, a in arrays.items() if n not in problem.saved}))
    stored_types = {**problem.stored_types(), **{n: ElementKind(_tag(a)) for n, a in {**arrays, **outputs}.items()}}
    allowed = tolerances(problem, arrays, exact, stored_types)
    accuracies = {}
    for argument, name in problem.results.items():
        got = problem.flat(argument, as_float(outputs[argument]))
        accuracies[argument] = compare(got, exact[name], allowed[argument], stored_types[argument])
    return accuracies


def _tag(array: np.ndarray[Any, Any]) -> ElementKind:
    from baracuda.runtime.arrays.element import BY_NUMPY

    return BY_NUMPY[array.dtype]
