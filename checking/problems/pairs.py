"""Problems in which features of a descriptor meet pairwise: a covering array over what its fields declare.

Features are flags, the signs of numbers, how many times a field is smaller than the one that it is by default the same
as, which of two fields that are drawn alike is larger, whether rows are whole packs, and how arrays lie in memory.
"""

from __future__ import annotations

import ast
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from baracuda.codegen.conditions.parse import evaluate_condition
from baracuda.codegen.spec.parts import FieldSpec, RangeSpec
from baracuda.codegen.spec.spec import OpSpec
from baracuda.runtime import KernelSku

from .cases import adapted, canonical, could_serve, server
from .problem import Problem
from .subject import Subject

PATTERNS = ("contiguous", "gap", "odd")  # of `trials.memory`
_MOST = 1 << 16  # elements of a problem
_MIXES = 150  # of features, of which those are taken that bring most pairs together
_PATTERN = " pattern"  # no field has this name

Values = Mapping[str, Any]


@dataclass(frozen=True)
class _Feature:
    """A property of a problem: its level for a descriptor's values, and values of fields that give it other levels."""

    name: str
    level: Callable[[Values], Hashable]
    changes: Callable[[Values], list[dict[str, Any]]]


def paired_problems(
    subject: Subject, sku: KernelSku, bases: Sequence[Problem]
) -> Iterator[tuple[Problem, dict[str, str]]]:
    """Problems that `sku` serves and how each array lies: levels of any two features meet in one if they can."""
    features = _features(subject.spec, 16 // sku.element.row.bytes)
    mixes = _mixes(subject, sku, features, adapted(subject, sku, bases, _MOST))
    serve = server(subject, sku, bases)
    met: set[Hashable] = set()
    while mixes:
        best = max(mixes, key=lambda mix: len(mixes[mix] - met))
        pairs, case = mixes.pop(best), dict(best.case)
        if not pairs - met:
            return
        problem = serve(subject, case, sku)
        if problem is not None and problem.size <= _MOST:
            met |= pairs
            yield problem, dict.fromkeys(problem.arguments, best.pattern)


@dataclass(frozen=True)
class _Mix:
    case: tuple[tuple[str, Any], ...]
    pattern: str


def _mixes(
    subject: Subject, sku: KernelSku, features: Sequence[_Feature], bases: Sequence[Problem]
) -> dict[_Mix, frozenset[Hashable]]:
    """Random mixes of features, each with the pairs of levels that meet in it."""
    rng = np.random.default_rng(zlib.crc32(sku.symbol.encode()))
    small = [base for base in bases if all(0 not in base.shape_of(name) for name in base.written)] or bases
    pairs: dict[_Mix, frozenset[Hashable]] = {}
    for _ in range(_MIXES if small else 0):
        case = dict(small[int(rng.integers(len(small)))].case)
        for place in rng.permutation(len(features)):
            changes = features[place].changes(subject.values(case))
            changed = case | changes[int(rng.integers(len(changes)))] if changes else case
            if changed != case and _is_small(subject, changed) and could_serve(subject, sku, changed):
                case = changed
        values = canonical(subject.values(case))
        pattern = PATTERNS[int(rng.integers(len(PATTERNS)))]
        levels = [*((f.name, f.level(values)) for f in features), (_PATTERN, pattern)]
        mix = _Mix(tuple(canonical(case).items()), pattern)
        pairs[mix] = frozenset(combinations(levels, 2))
    return pairs


def _is_small(subject: Subject, case: Values) -> bool:
    """Whether all tensors that have shapes of their own, or else the index space, have few elements."""
    values, spec = subject.values(case), subject.spec
    shapes = [evaluate_condition(t.own_shape, values) for t in spec.arguments.values() if t.own_shape is not None]
    if shapes:
        return sum(map(prod, shapes)) <= _MOST
    return prod(prod(values[name]) for name, field in spec.descriptor.items() if field.type == "shape") <= _MOST


def _features(spec: OpSpec, vec: int) -> list[_Feature]:
    features: list[_Feature] = []
    for name, field in spec.descriptor.items():
        features += _of_field(spec, name, field)
    features += [_order(a, b) for a, b in _drawn_alike(spec)]
    return [*features, *(_packs(name, spec.descriptor[name], vec) for name in _last_extents(spec))]


def _of_field(spec: OpSpec, name: str, field: FieldSpec) -> Iterator[_Feature]:
    rule = spec.tests.draw.get(name)
    drawn = list(rule) if isinstance(rule, list) else []
    if field.same_as and field.type == "int":
        yield _same(name, field.same_as, drawn)
    elif field.type == "bool":
        yield _Feature(name, lambda values: values[name], lambda values: [{name: False}, {name: True}])
    elif field.type == "float":
        yield _sign(name, drawn or [0.0, 0.5, -0.5])
    elif is_signed(spec, name):
        yield _sign(name, drawn)


def is_signed(spec: OpSpec, name: str) -> bool:
    """Whether a field is a whole number that may be negative."""
    field, rule = spec.descriptor[name], spec.tests.draw.get(name)
    return field.type == "int" and min(field.default or 0, *(rule if isinstance(rule, list) else ()), 0) < 0


def _sign(name: str, drawn: Sequence[Any]) -> _Feature:
    def changes(values: Values) -> list[dict[str, Any]]:
        by_sign = {_sign_of(value): value for value in (*drawn, values[name])}
        return [{name: value} for value in by_sign.values()]

    return _Feature(name, lambda values: _sign_of(values[name]), changes)


def _sign_of(value: float) -> int:
    return (value > 0) - (value < 0)


def _same(name: str, other: str, drawn: Sequence[Any]) -> _Feature:
    def changes(values: Values) -> list[dict[str, Any]]:
        fewer = [{name: value} for value in drawn if 0 < value < values[other] and values[other] % value == 0]
        more = [{name: values[name], other: 2 * values[name]}] if values[name] == values[other] else []
        return [{name: values[other]}, *(fewer[-1:] or more), {name: values[name], other: 3 * values[name]}]

    return _Feature(name, lambda values: _times(values[other], values[name]), changes)


def _times(larger: int, smaller: int) -> int:
    """1, 2 for any power of two, as which shifts and masks are right, or 3 for what only divisions are right for."""
    times = larger // smaller if smaller > 0 and larger % smaller == 0 else 1
    return 1 if times == 1 else 3 if times & (times - 1) else 2


def _drawn_alike(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """Pairs of numbers of the same kind: queries and keys, say, but not batches and channels."""
    extents = {n: rule for n, rule in spec.tests.draw.items() if spec.descriptor[n].type == "int"}
    extents = {n: r for n, r in extents.items() if isinstance(r, RangeSpec) or min(r) >= 0}
    for a, b in combinations(extents, 2):
        if extents[a] == extents[b] and not {spec.descriptor[a].same_as, spec.descriptor[b].same_as} & {a, b}:
            yield a, b


def _order(a: str, b: str) -> _Feature:
    def changes(values: Values) -> list[dict[str, Any]]:
        low, high = sorted((values[a], values[b]))
        high += 5 * (low == high)
        return [{a: low, b: high}, {a: high, b: low}, {a: low, b: low}]

    return _Feature(f"{a} beside {b}", lambda values: _sign_of(values[a] - values[b]), changes)


def _last_extents(spec: OpSpec) -> list[str]:
    """The fields along which tensors are contiguous, where vectors load."""
    names = {}
    for tensor in spec.tensors.values():
        if tensor.own_shape is not None:
            shape = ast.parse(tensor.own_shape, mode="eval").body
            if isinstance(shape, ast.Tuple) and shape.elts and isinstance(shape.elts[-1], ast.Name):
                names[shape.elts[-1].id] = tensor
    shapes = [name for name, field in spec.descriptor.items() if field.type == "shape"]
    return [*names, *shapes]


def _packs(name: str, field: FieldSpec, vec: int) -> _Feature:
    def last(value: Any) -> int:
        return int(value) if field.type == "int" else int(value[-1]) if value else 0

    def changes(values: Values) -> list[dict[str, Any]]:
        extent = last(values[name])
        whole = max(vec, extent // vec * vec)
        if field.type == "int":
            return [{name: whole}, {name: whole + 1}, {name: max(1, whole - 1)}]
        front = list(values[name])[:-1]
        return [{name: [*front, n]} for n in (whole, whole + 1)] if values[name] else []

    return _Feature(f"packs of {name}", lambda values: last(values[name]) % vec == 0, changes)
