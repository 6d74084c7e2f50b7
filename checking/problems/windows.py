"""Problems of several tiles in which one window alone is limited: it begins or ends in the middle of a tile.

In one of them the first extent alone is long: whole tiles of it see nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from baracuda.codegen.spec.parts import RangeSpec
from baracuda.runtime import KernelSku, Schedule

from .cases import could_serve, server
from .pairs import is_signed
from .problem import Problem
from .subject import Subject

_PARTS = 3, 8  # of the longest extent that a window is
_MOST = 1 << 18  # elements of a problem


def windowed_problems(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[Problem]:
    """For each number that is unlimited below 0 the smallest problems that `sku` serves with two values of it.

    With the second value also one with fewer long extents.
    """
    spec, serve = subject.spec, server(subject, sku, bases)
    windows = [name for name in spec.descriptor if is_signed(spec, name)] if spec.by_hand else []
    tried = [*((part, False) for part in _PARTS), (_PARTS[-1], True)]
    for name in windows:
        found: list[Problem] = []
        for base in sorted(bases, key=lambda problem: (not problem.several, problem.size)):
            cases = [_limited(subject, sku, base, name, part, one) for part, one in tried]
            served = [problem for case in cases if case and (problem := serve(subject, case, sku))]
            usable = [problem for problem in served if _is_usable(problem)]
            found = max(found, usable, key=len)
            if len(found) >= len(_PARTS):
                break
        yield from found


def _is_usable(problem: Problem) -> bool:
    return problem.size <= _MOST and all(0 not in problem.shape_of(array) for array in problem.written)


def _limited(
    subject: Subject, sku: KernelSku, base: Problem, name: str, part: int, one: bool
) -> Mapping[str, Any] | None:
    """One of `base` without flags, as many extents longer than two tiles as `sku` serves, and a window along them.

    With `one`, the first of those extents alone. Fields that are by default the same are so where `sku` needs that.
    """
    spec, numbers = subject.spec, dict(sku.schedule.numbers) if isinstance(sku.schedule, Schedule) else {}
    tile = max((number for key, number in numbers.items() if "block_" in key), default=1)
    flags = {field: False for field, of in spec.descriptor.items() if of.type == "bool"}
    unlimited = {field: -1 for field in spec.descriptor if is_signed(spec, field)}
    batch = {spec.tests.batch: 1} if spec.tests.batch else {}
    ranges = {field: rule for field, rule in spec.tests.draw.items() if isinstance(rule, RangeSpec) and not rule.rank}
    long = [field for field, rule in ranges.items() if rule.high > 2 * tile]
    alike = {str(of.same_as): base.values[field] for field, of in spec.descriptor.items() if of.same_as}
    lengths = [(2 * tile + tile // 8 + 1, *[0] * (len(long) - 1))] if one else []
    for least in lengths or product((2 * tile + tile // 8 + 1, 0), repeat=len(long)):
        extents = {field: max(base.values[field], extent) for field, extent in zip(long, least, strict=False)}
        window = max(extents.values(), default=0) // part | 1  # odd, and so in the middle of a tile
        for equal in ({}, alike):
            case = {**base.case, **equal, **flags, **unlimited, **extents, **batch, name: window}
            if could_serve(subject, sku, case):
                return case
    return None
