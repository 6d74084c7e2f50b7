"""What the outputs should be, in more precision than any kernel has, and how far from it a kernel may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baracuda.codegen.program.evaluate import Bounded
from baracuda.runtime import ElementKind

from ..problems.body import BodyProblem
from ..problems.map import MapProblem
from ..problems.problem import Arrays, Problem
from ..problems.row import RowProblem
from . import body as body_oracle
from . import program as program_oracle
from .memo import memoized
from .wide import wide_type

Flat = dict[str, Any]


def reference(problem: Problem, arrays: Mapping[str, Any]) -> Flat:
    """Expected outputs of `problem` for `arrays` (as `widen` gives them), by the definition.

    Saved tensors among the results are what the forward would have saved.
    """
    if isinstance(problem, BodyProblem):
        return body_oracle.reference(problem, arrays)
    return program_oracle.reference(_programmed(problem), arrays)


@memoized
def explicit(problem: Problem, arrays: Mapping[str, Any]) -> Flat | None:
    """Expected outputs by the op's own program, for saved tensors of any value; None for an op that has no program."""
    return None if isinstance(problem, BodyProblem) else program_oracle.explicit(_programmed(problem), arrays)


@memoized
def tolerances(
    problem: Problem,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    exact: Mapping[str, Any],
    held: Mapping[str, ElementKind],
    *,
    saved: Mapping[str, Any] | None = None,
) -> Flat:
    """The declared bound on the error of each element of each output, in the form that `flat` gives.

    `saved` are the real values of saved inputs: by default those of `exact`; {} where what is there counts as exact.
    """
    real = exact if saved is None else saved
    if isinstance(problem, BodyProblem):
        wide = widen(problem, arrays)
        return body_oracle.tolerances(problem, wide, {**exact, **real}, held)
    return program_oracle.tolerances(_programmed(problem), _bounded(problem, arrays, real), held)


def _programmed(problem: Problem) -> program_oracle.Programmed:
    assert isinstance(problem, RowProblem | MapProblem)
    return problem


def widen(
    problem: Problem, arrays: Mapping[str, np.ndarray[Any, Any]], kind: np.dtype[Any] | None = None
) -> Flat:
    """Arrays as the oracle reads them: in its own form and, unless `kind` is another, in its own type."""
    kind = kind or wide_type(problem.element)
    return {n: problem.flat(n, _as_wide(a, kind)) for n, a in arrays.items()}


def _as_wide(array: np.ndarray[Any, Any], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    moved = array.dtype.kind in "iubc" or kind.kind in "iubc"
    return array if moved else array.astype(np.float64).astype(kind)


@memoized
def with_saved(
    problem: Problem, arrays: Arrays, held: Mapping[str, ElementKind], hidden: Arrays | None = None
) -> tuple[Arrays, Flat]:
    """Add what the forward saves, rounded as it is stored; return the arrays and the oracle's results."""
    kind = wide_type(problem.element)
    wide = {n: _as_wide(a, kind) for n, a in (hidden or {}).items()}
    with np.errstate(all="ignore"):
        expected = reference(problem, {**widen(problem, arrays), **wide})
    full = dict(arrays)
    for name in sorted(problem.saved):
        if name in problem.arguments:
            exact = problem.caller(name, np.asarray(expected[name]), problem.shape_of(name))
            full[name] = exact.astype(np.float64).astype(held[name].row.numpy)
    return full, expected


def _bounded(
    problem: Problem, arrays: Mapping[str, np.ndarray[Any, Any]], exact: Mapping[str, Any]
) -> dict[str, Bounded]:
    """Inputs with how far they lie from the real values that the expectation was computed from."""
    bounded = {}
    for name, value in widen(problem, arrays).items():
        with np.errstate(invalid="ignore"):
            error = np.abs(value - exact[name]) if name in problem.saved and name in exact else 0.0
        bounded[name] = Bounded(value, error)
    return bounded
