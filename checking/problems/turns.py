"""Problems in which each block takes several turns: persistent blocks loop, and rings of buffers wrap around."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from baracuda.codegen.conditions.parse import evaluate_condition
from baracuda.codegen.spec.spec import BodySpec, RangeSpec, RowSpec
from baracuda.runtime import KernelSku, Schedule

from .cases import canonical, could_serve, fills_packs, server
from .problem import Problem
from .subject import Subject

_MOST = 1 << 19  # elements of a problem


def with_turns(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Problem:
    """A cheap problem for `sku` with several turns of a block, where the device has one multiprocessor.

    Of a row op, five turns of two blocks. Of a body, extents that its tests draw from a range are more than two tiles,
    whatever element types the spec's cases name. Where there is none, the largest of `bases` up to `_MOST` elements.
    """
    if isinstance(subject.spec, RowSpec):
        return _on_two_blocks(sku, bases)
    serve = server(subject, sku, bases)
    for case in _stretched(subject, sku, bases) if isinstance(subject.spec, BodySpec) else ():
        problem = serve(subject, case, sku)
        if problem is not None and 0 < problem.size <= _MOST:
            return anew(problem)
    fitting = [problem for problem in bases if problem.size <= _MOST] or list(bases)
    return anew(max(fitting, key=lambda problem: problem.size))


def _on_two_blocks(sku: KernelSku, bases: Sequence[Problem]) -> Problem:
    """Short rows of whole packs, and a plan that starts two blocks, or clusters: kernels are told their number."""
    vec, tile = 16 // sku.element.row.bytes, sku.tile
    several = [problem for problem in bases if problem.size and problem.batch]
    if not several or not tile.blocks:
        return min(several or bases, key=lambda problem: problem.size)
    base = min(several, key=lambda problem: (not fills_packs(problem, vec), problem.size // (problem.batch or 1)))
    problem = base.with_batch(4 * tile.rows + 1)
    row = replace(base.plan._row, sku=replace(sku, schedule=replace(tile, blocks=2)))
    problem.plan = type(base.plan)(problem.descriptor, row, base.plan.layouts)
    return problem


def anew(problem: Problem) -> Problem:
    """With a plan that has not run yet: plans remember the number of multiprocessors, but rows that of their blocks."""
    plan, own = problem.plan, copy(problem)
    type(plan)._selected.clear()
    if isinstance(problem.spec, RowSpec):
        own.plan = type(plan)(plan.descriptor, plan._row, plan.layouts)
    else:
        own.plan = plan.select(plan.descriptor, plan._preference, layouts=plan.layouts)
    return own


def _stretched(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[Mapping[str, Any]]:
    """Cases of long extents that `sku` can serve, with tails below and above half a tile, in order of `_preference`."""
    spec = subject.spec
    numbers = dict(sku.schedule.numbers) if isinstance(sku.schedule, Schedule) else {}
    tile = max((int(number) for number in numbers.values()), default=1)
    ranges = {name: rule for name, rule in spec.tests.draw.items() if isinstance(rule, RangeSpec) and not rule.rank}
    long = [name for name, rule in ranges.items() if rule.high > 2 * tile]
    tails = product((2 * tile + tile // 10 + 1, 3 * tile - tile // 10 - 1), repeat=len(long))
    stretches = [dict(zip(long, values, strict=True)) for values in tails]
    others = ({name: value for name, value in case.items() if name != "dtype"} for case in spec.tests.cases)
    cases = [{**case, **stretch} for case in (*(base.case for base in bases), *others) for stretch in stretches]
    for case in sorted(cases, key=lambda case: _preference(subject, case)):
        if could_serve(subject, sku, case):
            yield case


def _preference(subject: Subject, case: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Several heads or samples, whichever an output's first axes count, before one; more flags before fewer, then less
    work, as the spec's benchmark counts it.
    """
    spec, values = subject.spec, canonical(subject.values(case))
    assert isinstance(spec, BodySpec)
    shapes = [tuple(evaluate_condition(tensor.shape, values)) for tensor in spec.outputs.values()]
    work = evaluate_condition(spec.bench.flops, values) if spec.bench.flops else sum(map(prod, shapes))
    alone = max(sum(extent > 1 for extent in shape) for shape in shapes) <= 2
    return alone, -sum(value is True for value in values.values()), int(work)
