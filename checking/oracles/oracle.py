"""Expected outputs in higher precision than the kernel's, and bounds on its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baracuda.codegen.program.bounds import Bounded
from baracuda.runtime import ElementKind

from ..problems.problem import Arrays, Problem, ProgramProblem
from . import body as body_oracle
from . import program as program_oracle
from .accuracy import of_parts
from .memo import memoized
from .wide import as_wide, wide_type

Flat = dict[str, Any]


def reference(problem: Problem, arrays: Mapping[str, Any]) -> Flat:
    """Expected outputs of `problem` for `arrays` (from `widen`), by the definition.

    The results include the saved tensors, as the forward computes them.
    """
    if not isinstance(problem, ProgramProblem):
        return body_oracle.reference(problem, arrays)
    expected = program_oracle.reference(problem, arrays)
    if problem.spec.gradient is None or not any(np.isnan(v).any() for v in expected.values()):
        return expected
    # Autodiff multiplies 0 by what the other side of a choice has, infinity at times. The op's own formula need not.
    own = program_oracle.explicit(problem, {**arrays, **{n: expected[n] for n in problem.saved}})
    return {**expected, **{n: np.where(np.isnan(expected[n]), own[n], expected[n]) for n in own if n in expected}}


@memoized
def explicit(problem: Problem, arrays: Mapping[str, Any]) -> Flat | None:
    """Expected outputs by the op's own program, for saved tensors of any value; None without one."""
    return program_oracle.explicit(problem, arrays) if isinstance(problem, ProgramProblem) else None


@memoized
def tolerances(
    problem: Problem,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    exact: Mapping[str, Any],
    types: Mapping[str, ElementKind],
    *,
    saved: Mapping[str, Any] | None = None,
) -> Flat:
    """The declared bound on the error of each element of each output, in the shapes of `flat`.

    `saved` are the exact values of saved inputs, by default those in `exact`; {} treats the given ones as exact.
    """
    real = exact if saved is None else saved
    if not isinstance(problem, ProgramProblem):
        wide = widen(problem, arrays)
        return body_oracle.tolerances(problem, wide, {**exact, **real}, types)
    return program_oracle.tolerances(problem, _bounded(problem, arrays, real), types)


def widen(
    problem: Problem, arrays: Mapping[str, np.ndarray[Any, Any]], kind: np.dtype[Any] | None = None
) -> Flat:
    """Arrays in the shapes of `flat` and the oracle's type, or `kind`."""
    kind = kind or wide_type(problem.element)
    return {n: problem.flat(n, as_wide(a, kind)) for n, a in arrays.items()}


@memoized
def with_saved(
    problem: Problem, arrays: Arrays, types: Mapping[str, ElementKind], hidden: Arrays | None = None
) -> tuple[Arrays, Flat]:
    """Add the tensors that the forward saves, as stored; return the arrays and the expected results."""
    kind = wide_type(problem.element)
    wide = {n: as_wide(a, kind) for n, a in (hidden or {}).items()}
    with np.errstate(all="ignore"):
        expected = reference(problem, {**widen(problem, arrays), **wide})
    full = dict(arrays)
    for name in sorted(problem.saved):
        if name in problem.arguments:
            exact = problem.caller(name, np.asarray(expected[name]), problem.shape_of(name))
            full[name] = as_wide(exact, np.dtype(np.float64)).astype(types[name].row.numpy)
    return full, expected


def _bounded(
    problem: Problem, arrays: Mapping[str, np.ndarray[Any, Any]], exact: Mapping[str, Any]
) -> dict[str, Bounded]:
    """Inputs with their distance from the exact values."""
    bounded = {}
    for name, value in widen(problem, arrays).items():
        with np.errstate(invalid="ignore"):
            known = name in problem.saved and name in exact
            error = of_parts(np.abs, value - exact[name]) if known else 0.0
        bounded[name] = Bounded(value, error)
    return bounded
