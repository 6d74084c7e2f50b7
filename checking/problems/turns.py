"""Problems in which each block takes several turns: persistent blocks loop, and rings of buffers wrap around."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from baracuda.runtime import KernelSku

from .cases import server
from .problem import Problem
from .subject import Subject

_MOST = 1 << 19  # elements of a problem


def with_turns(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Problem:
    """A cheap problem for `sku` with several turns of a block, where the device has one multiprocessor.

    Of a row op, five turns of two blocks. Of a body, extents that its tests draw from a range are more than two tiles,
    whatever element types the spec's cases name. Where there is none, the largest of `bases` up to `_MOST` elements.
    """
    of = Problem.kind_of(subject)
    if (problem := of.in_turns(sku, bases)) is not None:
        return problem
    serve = server(subject, sku, bases)
    for case in of.long_cases(subject, sku, bases):
        if (problem := serve(subject, case, sku)) is not None and 0 < problem.size <= _MOST:
            return anew(problem)
    fitting = [problem for problem in bases if problem.size <= _MOST] or list(bases)
    return anew(max(fitting, key=lambda problem: problem.size))


def anew(problem: Problem) -> Problem:
    """With a plan that has not run yet."""
    own = copy(problem)
    type(problem.plan)._selected.clear()
    own.plan = problem.planned_anew()
    return own
