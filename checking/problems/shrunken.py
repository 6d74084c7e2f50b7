"""Kernels with fewer blocks and splits, whose loops have several turns, and a last part, in small problems too."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import permutations
from typing import Any

from baracuda.runtime import KernelSku, Schedule
from baracuda.runtime.plans.sku import Tile

from .cases import could_serve, server
from .edges import Place
from .problem import Problem
from .subject import Subject

MULTIPROCESSORS = 2  # that persistent kernels are told of
_BLOCKS, _SPLITS, _WARP = 2, 3, 32
_MOST = 1 << 16  # elements of a problem
_SOME = 37
_LONG = 1 << 17  # of a problem that is long along one extent, for each warp of a block


def shrinks(sku: KernelSku) -> bool:
    """Whether blocks take turns, or share work: by the numbers of its tile or schedule."""
    names = dict(sku.schedule.numbers) if isinstance(sku.schedule, Schedule) else {"blocks": sku.tile.blocks}
    return any(names.get(name) for name in ("blocks", "splits"))


def shrunken(problem: Problem) -> Problem:
    """The same problem for the same kernel with a smaller schedule."""
    plan, small = problem.plan, copy(problem)
    sku = replace(plan.sku, schedule=_smaller(plan.sku.schedule))
    row = replace(plan._row, sku=sku)
    small.plan = plan._served_by(row)
    return small


def _smaller(schedule: Tile | Schedule) -> Tile | Schedule:
    if isinstance(schedule, Tile):
        return replace(schedule, blocks=min(schedule.blocks, _BLOCKS))
    most = {"blocks": _BLOCKS, "splits": _SPLITS}
    numbers = tuple((name, min(value, most.get(name, value))) for name, value in schedule.numbers)
    # What is dealt to threads in packs alone may have any number of warps.
    threads = _WARP if {name for name, _ in numbers} == {"packs", "blocks"} else schedule.threads
    return Schedule(threads, numbers)


def shrunken_problems(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[Problem]:
    """Problems along whose extents there is much, then `bases` from large to small, for the smaller schedule."""
    small = [base for base in bases if base.size <= _MOST]
    for problem in (*_long(subject, sku, bases), *sorted(small, key=lambda base: -base.size)):
        yield shrunken(problem)


def _long(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[Problem]:
    """The smallest problem with several cells, far longer along each extent, and along any two of shapes.

    Of two, the first is long and whole packs.
    """
    base = min(bases, key=lambda problem: (not problem.several, problem.size), default=None)
    if base is None or not base.size:
        return
    serve, most = server(subject, sku, bases), _LONG * _WARP // shrunken(base).plan.sku.schedule.threads
    extents = list(extents_of(base))
    pairs = permutations([place for place in extents if place[1] is not None], 2)
    for places in sorted([*((place,) for place in extents), *pairs], key=lambda places: _hash(sku, places)):
        extent = most
        while extent > 1:
            # No whole number of anything, or of two one that is, and some that no number of blocks divides.
            by_place = dict(zip(places, (extent - 1,) if len(places) == 1 else (extent, _SOME), strict=True))
            case = with_extents(base, by_place)
            if could_serve(subject, sku, case) and (problem := serve(subject, case, sku)) and problem.size <= most:
                yield problem
                break
            extent //= 2


def _hash(sku: KernelSku, places: Sequence[Place]) -> int:
    """So that the first of each kernel are other ones."""
    return zlib.crc32(f"{sku.symbol} {places}".encode())


def extents_of(base: Problem) -> Iterator[Place]:
    """The fields that are drawn as extents, and each axis of those that are shapes."""
    for name, field in base.spec.descriptor.items():
        if field.type == "shape":
            yield from ((name, axis) for axis in range(len(base.values[name])))
        elif field.type == "int" and hasattr(base.spec.tests.draw.get(name), "high"):
            yield name, None


def with_extents(base: Problem, extents: Mapping[Place, int]) -> dict[str, Any]:
    """The case of `base` with other extents at some places."""
    case = dict(base.case)
    for (name, axis), extent in extents.items():
        shape = list(case[name]) if axis is not None else []
        case[name] = extent if axis is None else [*shape[:axis], extent, *shape[axis + 1 :]]
    return case
