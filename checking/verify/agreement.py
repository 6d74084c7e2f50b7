"""Whether outputs have the same bits as others, are near them, or are within their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind

from ..oracles.accuracy import Accuracy, as_float, compare
from ..oracles.oracle import tolerances
from ..problems.problem import Arrays, Problem
from ..trials.arrange import same_bits


def compared(
    problem: Problem,
    arrays: Arrays,
    exact: Mapping[str, Any],
    outputs: Arrays,
    types: Mapping[str, ElementKind],
    saved_exact: Mapping[str, Any] | None = None,
) -> dict[str, Accuracy]:
    with np.errstate(over="ignore"):  # infinity and the numbers near it
        allowed = tolerances(problem, arrays, exact, types, saved=saved_exact)
    wide = {a: problem.flat(a, as_float(outputs[a])) for a in problem.results}
    return {a: compare(wide[a], exact[n], allowed[a], types[a]) for a, n in problem.results.items()}


def promised_by(problem: Problem, rung: str) -> set[str]:
    """The written arguments whose outputs have a promise."""
    names = {name for name, rungs in problem.plan.promises.items() if rung in rungs}
    return {argument for argument, name in problem.results.items() if names & {argument, name}}


def require_same(problem: Problem, base: Arrays, other: Arrays, promised: set[str], change: str) -> None:
    for name, expected in base.items():
        if name in promised and not same_bits(expected, other[name]):
            raise AssertionError(f"{label_of(problem)}: {name!r} has other bits with {change}")
        if name not in promised:
            _require_near(problem, expected, other[name], f"{name!r} with {change}")


def _require_near(problem: Problem, expected: np.ndarray[Any, Any], other: np.ndarray[Any, Any], label: str) -> None:
    """Where bits are not guaranteed, values must be close."""
    a, b = as_float(expected), as_float(other)
    scale = np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
    np.testing.assert_allclose(b, a, rtol=1e-2, atol=1e-2 * float(scale), err_msg=f"{label_of(problem)}: {label}")


def label_of(problem: Problem) -> str:
    return f"{problem.plan.sku.symbol} on {problem.descriptor}"
