"""Problems on both sides of every comparison that decides over a kernel: in its spec, and in its tile."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from baracuda.codegen.conditions.gaps import gaps_of
from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition, fields_of
from baracuda.runtime import BaracudaError, KernelSku

from .cases import Serve, is_allowed, server
from .problem import Problem
from .subject import Subject

Place = tuple[str, int | None]  # a field, and which extent of a shape
_LARGEST = 1 << 13  # extent that is tried
_MOST = 1 << 17  # elements of a problem
SIDES = (0, 1, -1)


def edge_problems(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[Problem]:
    """Problems that `sku` serves: for each comparison one where both sides are equal, and one on either side of that.

    Each is one of `bases` with one field changed. A problem may be at several edges; edges out of reach are left out.
    """
    limits = Problem.kind_of(subject).limits(subject)
    texts = dict.fromkeys(gap for text in limits for gap in gaps_of(text))
    left = sorted(((text, side) for text in texts for side in SIDES), key=lambda goal: _hash(goal, sku))
    serve = server(subject, sku, bases)
    reached = {goal for problem in bases for goal in left if _gap(problem, sku, goal[0], problem.case) == goal[1]}
    for goal in left:
        if goal in reached:
            continue
        for problem in _at(serve, sku, bases, *goal):
            reached |= {other for other in left if _gap(problem, sku, other[0], problem.case) == other[1]}
            yield problem
            break
    for text in limits:
        if " or " in text or " and " in text:
            yield from _deciding(subject, serve, sku, bases, text)


def _deciding(subject: Subject, serve: Serve, sku: KernelSku, bases: Sequence[Problem], text: str) -> Iterator[Problem]:
    """For each comparison in `text` both sides of an edge where it alone decides, whatever it is joined to."""
    for gap in gaps_of(text):
        for base in sorted(bases, key=lambda problem: (not problem.several, problem.size)):
            cases = [_solved(base, sku, gap, side, place) for place in _places(base, gap) for side in SIDES]
            allowed = [case for case in cases if case and is_allowed(subject.spec, subject.values(case))]
            if len({_gap(base, sku, text, case) for case in (base.case, *allowed)} - {None}) > 1:
                problems = [serve(subject, case, sku) for case in allowed]
                yield from (problem for problem in problems if problem is not None and problem.size <= _MOST)
                break


def _hash(goal: tuple[str, int], sku: KernelSku) -> int:
    """So that the first few of each kernel are other edges."""
    return zlib.crc32(f"{sku.symbol} {goal}".encode())


def _at(serve: Serve, sku: KernelSku, bases: Sequence[Problem], text: str, side: int) -> Iterator[Problem]:
    for base in sorted(bases, key=lambda problem: (problem.size == 0, problem.size)):
        for case in solutions(base, sku, text, side):
            problem = serve(base.subject, case, sku)
            if problem is not None and problem.size <= _MOST:
                yield problem


def solutions(base: Problem, sku: KernelSku, text: str, side: int) -> Iterator[dict[str, Any]]:
    """The case of `base` with a field changed so that `text` is `side`, or next to 0 on that side of it."""
    for place in _places(base, text):
        case = _solved(base, sku, text, side, place)
        if case is not None and is_allowed(base.spec, base.subject.values(case)):
            yield case


def _places(base: Problem, text: str) -> list[Place]:
    """What may be changed to move `text`: the fields that it is made of."""
    names = base.fields_behind(fields_of(text))
    places: list[Place] = []
    for name, field in base.spec.descriptor.items():
        if name in names and field.type == "shape":
            places += [(name, axis) for axis in reversed(range(len(base.values[name])))]
        elif name in names and field.type not in ("bool", "kind"):
            places.append((name, None))
    return places


def _solved(base: Problem, sku: KernelSku, text: str, side: int, place: Place) -> dict[str, Any] | None:
    """The case of `base` with a value at `place` for which `text` is `side`, or next to 0 on that side of it."""
    now, is_float = _value(base, place), isinstance(_value(base, place), float)
    gap = _cached(lambda value: _gap(base, sku, text, _changed(base, place, value)))
    here = gap(now)
    if here is None:
        return None
    near = now - (here - side)
    if here != side and abs(near) <= _LARGEST and gap(near) == side:  # a difference of 1 in the field is one in the gap
        return _changed(base, place, near)
    if is_float:
        return None
    low, high = 0, _LARGEST
    first, last = gap(low), gap(high)
    if first is None or last is None or _passed(first, side) == _passed(last, side):
        return None
    while high - low > 1:  # to where the sign changes; of a quotient several are 0
        middle = (low + high) // 2
        value = gap(middle)
        if value is None:
            return None
        low, high = (middle, high) if _passed(value, side) == _passed(first, side) else (low, middle)
    for candidate in (low, high, low - 1, high + 1):
        value = gap(candidate) if candidate >= 0 else None
        if value is not None and (value > 0) - (value < 0) == side:
            return _changed(base, place, candidate)
    return None


def _passed(gap: Any, side: int) -> bool:
    return bool(gap > 0 if side > 0 else gap < 0)


def _cached(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known: dict[Any, Any] = {}

    def value_of(value: Any) -> Any:
        if value not in known:
            known[value] = function(value)
        return known[value]

    return value_of


def _value(base: Problem, place: Place) -> Any:
    name, axis = place
    return base.values[name] if axis is None else base.values[name][axis]


def _changed(base: Problem, place: Place, value: Any) -> dict[str, Any]:
    name, axis = place
    if axis is None:
        return {**base.case, name: value}
    shape = list(base.values[name])
    shape[axis] = value
    return {**base.case, name: shape}


def _gap(base: Problem, sku: KernelSku, text: str, case: Mapping[str, Any]) -> Any:
    """The value of `text` for another case, or None if it has none."""
    try:
        numbers = base.numbers(base.subject.descriptor(case, base.element), sku)
        return evaluate_condition(text, numbers)
    except (BaracudaError, ConditionError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
