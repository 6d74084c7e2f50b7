"""The usual problems that a program is tested on, which follow from its dims and fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from math import prod
from typing import Any

from ..conditions.parse import ConditionError, evaluate_condition
from .family import family_of
from .parts import TestsSpec
from .spec import OpSpec, ProgramSpec

_MANY = 50  # elements, among which special values of two arrays meet

Case = dict[str, Any]


def with_flags(spec: OpSpec) -> TestsSpec:
    """The tests of a spec, in which bools are true that nothing gives a value."""
    flags = [n for n, f in spec.descriptor.items() if f.type == "bool" and f.default is None and not f.same_as]
    return spec.tests.model_copy(update={"defaults": {**dict.fromkeys(flags, True), **spec.tests.defaults}})


def with_usual(spec: ProgramSpec) -> TestsSpec:
    """The tests of a valid spec, with the usual problems beside those that it lists."""
    tests = _with_usual(spec)
    kinds = [*filter(None, spec.by_kind)]
    return _of_kinds(tests, kinds, spec.dtypes) if kinds else tests


def _of_kinds(tests: TestsSpec, kinds: list[str], dtypes: tuple[str, ...]) -> TestsSpec:
    """Each problem with another kind, and for each kind that is left one of many elements, in one element type."""
    named, unnamed = ([c for c in tests.cases if ("kind" in c) is has] for has in (True, False))
    cases = [*named, *({"kind": kind, **case} for kind, case in zip(cycle(kinds), unnamed, strict=False))]
    large = [case for case in unnamed or cases if _elements(case) >= _MANY] or unnamed or cases
    shown = {case["kind"] for case in cases if _elements(case) >= _MANY}
    left = [kind for kind in kinds if kind not in shown]
    turns = zip(left, cycle(large), cycle(dtypes), strict=False)
    cases += [{"dtype": dtype, **case, "kind": kind} for kind, case, dtype in turns]
    return tests.model_copy(update={"cases": cases, "draw": {"kind": kinds, **tests.draw}})


def _elements(case: Case) -> int:
    """The product of all extents, as far as a case's values are some."""
    sizes = [value if isinstance(value, list) else [value] for value in case.values() if type(value) in (int, list)]
    return prod(extent for extents in sizes for extent in extents)


def _with_usual(spec: ProgramSpec) -> TestsSpec:
    tests = spec.tests
    if not tests.usual:
        return tests
    more = [case for case in _cases(spec, tests) if case not in tests.cases]
    draw = {**family_of(spec).usual_draw(spec), **tests.draw}
    return tests.model_copy(update={"cases": [*tests.cases, *more], "draw": draw})


def _cases(spec: ProgramSpec, tests: TestsSpec) -> Iterator[Case]:
    """Problems that violate no requirement, each as a spec would list it."""
    usual = {n: f.default for n, f in spec.descriptor.items() if f.default is not None} | tests.defaults
    same = {n: f.same_as for n, f in spec.descriptor.items() if f.same_as}
    cases = [*family_of(spec).usual_cases(spec)]
    flags = dict.fromkeys(t.optional for t in spec.tensors.values() if t.optional)
    cases += [{**cases[2], flag: not usual[flag]} for flag in flags if flag in usual and cases]
    for case in cases:
        values = {**usual, **case}
        values |= {n: values.get(other) for n, other in same.items() if n not in values}
        if set(spec.descriptor) - {"kind"} <= set(values) and _is_allowed(spec, values):
            yield case


def _is_allowed(spec: ProgramSpec, values: Mapping[str, Any]) -> bool:
    known = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    try:
        return all(evaluate_condition(requirement.that, known) for requirement in spec.require)
    except ConditionError:
        return False
