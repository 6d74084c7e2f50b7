"""How far a plan may be from torch: the declared bound plus torch's own error.

Torch's error matters only for plans that work in float64. It is bounded like the plan's, but as torch's order of
additions is unknown, sums count as one serial chain, and ops without a program as several.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind

from ..oracles.oracle import tolerances
from ..problems.problem import Arrays, Problem
from ..problems.subject import Subject
from .expected import Expected, Hidden

_CHAINS = {True: 16.0, False: 2.0}  # torch's errors in units of our bound: of hand-written kernels, of programs
_ROUNDOFFS = 2.0**-50  # relative errors of what torch saves, where they are not bounded


def allowed(problem: Problem, expected: Expected, hidden: Hidden, types: Mapping[str, ElementKind]) -> dict[str, Any]:
    """The bound on each element of each output, in the form of `Problem.flat`."""
    arrays, exact = expected.arrays, expected.exact
    with np.errstate(all="ignore"):
        saved = _saved(problem, expected, hidden, types)
        bound = tolerances(problem, arrays, exact, types, saved=saved)
        if not _computes_in_f64(problem):
            return bound
        torch_bounds = _torch_bounds(problem, arrays, exact, types, saved)
    return {name: np.asarray(value) + torch_bounds[name] for name, value in bound.items()}


def _computes_in_f64(problem: Problem) -> bool:
    """Whether the plan computes in torch's type."""
    return problem.element.row.acc == ElementKind.F64


def _torch_bounds(
    problem: Problem,
    arrays: Arrays,
    exact: Mapping[str, Any],
    types: Mapping[str, ElementKind],
    saved: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A bound on torch's errors in the problem's outputs."""
    chained: Any = copy(problem)
    chained.depth = lambda dims, count: float(count)
    bounds = tolerances(chained, arrays, exact, types, saved=saved)
    return {name: _times(np.asarray(value), _CHAINS[problem.spec.by_hand]) for name, value in bounds.items()}


def _times(bound: np.ndarray[Any, Any], factor: float) -> np.ndarray[Any, Any]:
    """Each part of complex bounds on its own: a product makes NaN of infinite ones."""
    if bound.dtype.kind != "c":
        return factor * bound
    product = np.empty_like(bound)
    product.real, product.imag = factor * bound.real, factor * bound.imag
    return product


def _saved(
    problem: Problem, expected: Expected, hidden: Hidden, types: Mapping[str, ElementKind]
) -> dict[str, Any] | None:
    """Saved inputs, moved from their stored values by as much as rounding may have."""
    names = problem.saved & expected.arrays.keys()
    if not names:
        return None
    errors = _forward_errors(problem, expected, hidden) if _computes_in_f64(problem) else {}
    values = {}
    for name in names:
        stored, exact = expected.arrays[name].astype(np.float64), expected.exact[name]
        value = problem.flat(name, stored).astype(np.longdouble)
        error = problem.flat(name, errors[name].reshape(stored.shape)) if errors else _ROUNDOFFS * np.abs(exact)
        values[name] = value - np.abs(value - exact) - error
    return values


def _forward_errors(problem: Problem, expected: Expected, hidden: Hidden) -> dict[str, Any]:
    """A bound on torch's errors in the forward's outputs, in the caller's shapes."""
    forward, subject = problem.forward, problem.subject
    assert forward is not None
    case = {name: hidden.fields[name] for name in forward.descriptor}
    twin = Problem.of(Subject(subject.others[forward.op], subject.others, subject.package), case, problem.element)
    inputs = {n: a for n, a in {**expected.arrays, **hidden.arrays}.items() if n in twin.spec.inputs}
    shapes = {name: twin.shape_of(name) for name in twin.results}
    exact = {n: twin.flat(a, expected.forward[n].reshape(shapes[a])) for a, n in twin.results.items()}
    bounds = _torch_bounds(twin, inputs, exact, twin.stored_types())
    return {n: np.asarray(twin.caller(a, _filled(bounds[a], exact[n]), shapes[a])) for a, n in twin.results.items()}


def _filled(bound: Any, like: Any) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.asarray(bound, np.float64), like.shape)
