"""Compares an op's reference with the definition that its spec names from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from baracuda.codegen.spec.backward import is_derivable

from ..oracles.accuracy import parts
from ..oracles.definitions import adapter
from ..oracles.oracle import with_saved
from ..oracles.program import derived
from ..oracles.wide import as_wide
from ..problems.cases import drawn_cases
from ..problems.problem import Arrays, Problem, ProgramProblem
from ..problems.subject import Subject
from .special_values import SPECIAL

_DRAWN = 12  # problems beside the spec's cases
_MOST = 1 << 15  # elements of a problem
_CLOSE = 1e-10  # both are computed in float64
_CANCELLED = 1e-12  # what is left of numbers of about 1 whose sum is 0


def check_definition(subject: Subject, count: int | None = None) -> None:
    """The reference is what the definition says, on the spec's cases and drawn ones, or on `count` of these."""
    if (name := subject.spec.tests.definition) is None:
        return
    define = adapter(name)
    for problem in _problems(subject)[:count]:
        arrays = problem.draw(seed=14)
        if subject.spec.by_kind.keys() != {""}:
            arrays = {name: _with_special(array, turn) for turn, (name, array) in enumerate(arrays.items())}
        exact = with_saved(problem, arrays, problem.stored_types())[1]
        defined = define(problem.values, _wide(arrays))
        for argument, output in problem.results.items():
            theirs = np.asarray(defined[output])
            ours = np.asarray(problem.caller(argument, exact[output], problem.shape_of(argument))).astype(theirs.dtype)
            _require_close(f"{problem.descriptor}: {argument!r} by the reference and by {name}", ours, theirs)


def check_derivation(subject: Subject, count: int | None = None) -> None:
    """What the generator derives from the forward's program is the derivative of its reference.

    That is so whether or not the gradient has a program of its own, which other checks compare with the same. One
    of its own may be there because nothing can be derived.
    """
    gradient = subject.spec.gradient
    if gradient is None or subject.spec.by_hand:
        return
    for problem in _problems(subject)[:count]:
        assert isinstance(problem, ProgramProblem)
        if not is_derivable(problem.forward, gradient):
            continue
        arrays, hidden = problem.draw(seed=15), problem.draw_hidden(seed=15)
        exact = with_saved(problem, arrays, problem.stored_types(), hidden)[1]
        given = {**{name: problem.flat(name, array) for name, array in _wide(arrays).items()}, **_wide(hidden)}
        for name, ours in derived(problem, given, exact).items():
            theirs = as_wide(np.asarray(exact[name]), np.dtype(np.float64))
            label = f"{problem.descriptor}: {name!r} as derived from {gradient.of} and by its reference"
            _require_close(label, np.broadcast_to(np.asarray(ours, theirs.dtype), theirs.shape), theirs)


def _problems(subject: Subject) -> Sequence[Problem]:
    """The spec's cases and drawn ones that are small and have elements; those with most arguments come first."""
    drawn = islice(drawn_cases(subject, np.random.default_rng(13)), _DRAWN)
    cases = [*subject.spec.tests.cases, *drawn]
    element = subject.spec.dtypes[0]
    own = ({name: value for name, value in case.items() if name != "dtype"} for case in cases)
    problems = [Problem.of(subject, case, element) for case in own]
    fitting = [problem for problem in problems if 0 < problem.size <= _MOST and _has_elements(problem)]
    return sorted(fitting, key=lambda problem: (-len(problem.arguments), not problem.several, problem.size))


def _has_elements(problem: Problem) -> bool:
    return all(0 not in problem.shape_of(name) for name in problem.arguments)


def _with_special(array: np.ndarray[Any, Any], turn: int) -> np.ndarray[Any, Any]:
    """`array`, NaN, infinities and zeros in up to half of its elements; those of two arrays meet in pairs."""
    changed, count = array.copy(), min(len(SPECIAL) ** 2, array.size // 2)
    if array.dtype.kind not in "iubc":
        changed.flat[:count] = [SPECIAL[place // len(SPECIAL) ** turn % len(SPECIAL)] for place in range(count)]
    return changed


def _wide(arrays: Arrays) -> dict[str, Any]:
    return {name: as_wide(array, np.dtype(np.float64)) for name, array in arrays.items()}


def _require_close(label: str, ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> None:
    if ours.shape != theirs.shape:
        raise AssertionError(f"{label}: shapes {ours.shape} and {theirs.shape}")
    if np.iscomplexobj(theirs):
        ours, theirs = parts(ours), parts(theirs)
    if theirs.dtype.kind in "iub":
        same = ours == theirs
    elif theirs.dtype.itemsize == 1:
        same = ours.view(np.uint8) == theirs.view(np.uint8)
    else:
        largest = np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))
        same = np.isclose(ours, theirs, rtol=_CLOSE, atol=_CLOSE * float(largest) + _CANCELLED, equal_nan=True)
    if not same.all():
        place = tuple(int(i) for i in np.argwhere(~same)[0])
        raise AssertionError(f"{label} differ at {place}: {ours[place]} and {theirs[place]}")
