"""The usual problems that a program is tested on, which follow from its dims and fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from math import prod
from typing import Any

from ..conditions.parse import ConditionError, evaluate_condition
from .default_conditions import OF_AXIS, OF_MASK
from .scope import Programmed
from .spec import Drawn, MapSpec, OpSpec, RangeSpec, RowSpec, TestsSpec

# Of the shape that rows and columns share out, and of an index space: one element, odd and even extents, several axes,
# more than any tile holds, nothing.
_ROWS = ([7, 257], [1, 1], [5, 64], [96], [2, 3, 4, 40], [3, 70000], [0, 16], [4, 0])
_CELLS = ([3, 50], [1], [2, 1, 33], [4, 16], [2, 3, 2, 3, 2, 3, 7], [20000], [0, 16])
_MANY = 50  # elements, among which special values of two arrays meet
_SMALL = (2, 3, 5, 2, 3, 2, 2, 2)

Case = dict[str, Any]


def with_flags(spec: OpSpec) -> TestsSpec:
    """The tests of a spec, in which bools are true that nothing gives a value."""
    flags = [n for n, f in spec.descriptor.items() if f.type == "bool" and f.default is None and not f.same_as]
    return spec.tests.model_copy(update={"defaults": {**dict.fromkeys(flags, True), **spec.tests.defaults}})


def with_usual(spec: Programmed) -> TestsSpec:
    """The tests of a valid spec, with the usual problems beside those that it lists."""
    tests = _with_usual(spec)
    kinds = [*spec.kinds] if isinstance(spec, MapSpec) else []
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


def _with_usual(spec: Programmed) -> TestsSpec:
    tests = spec.tests
    if not tests.usual:
        return tests
    more = [case for case in _cases(spec, tests) if case not in tests.cases]
    return tests.model_copy(update={"cases": [*tests.cases, *more], "draw": {**_draw(spec), **tests.draw}})


def _cases(spec: Programmed, tests: TestsSpec) -> Iterator[Case]:
    """Problems that violate no requirement, each as a spec would list it."""
    usual = {n: f.default for n, f in spec.descriptor.items() if f.default is not None} | tests.defaults
    same = {n: f.same_as for n, f in spec.descriptor.items() if f.same_as}
    cases = [*(_rows(spec) if isinstance(spec, RowSpec) else _cells(spec))]
    flags = dict.fromkeys(t.optional for t in spec.tensors.values() if t.optional)
    cases += [{**cases[2], flag: not usual[flag]} for flag in flags if flag in usual and cases]
    for case in cases:
        values = {**usual, **case}
        values |= {n: values.get(other) for n, other in same.items() if n not in values}
        if set(spec.descriptor) - {"kind"} <= set(values) and _is_allowed(spec, values):
            yield case


def _is_allowed(spec: Programmed, values: Mapping[str, Any]) -> bool:
    known = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    try:
        return all(evaluate_condition(requirement.that, known) for requirement in spec.require)
    except ConditionError:
        return False


def _rows(spec: RowSpec) -> Iterator[Case]:
    """The last axis is the columns, but of three or more axes the last but one, or of a mask both."""
    columns = [dim for dim in spec.dims.values() if dim.axes != "rest"]
    axis, mask = (pattern.fullmatch(columns[0].axes) for pattern in (OF_AXIS, OF_MASK))
    for shape in _ROWS if axis or mask else ():
        rank = len(shape)
        if axis:
            yield {columns[0].of: shape, axis[1]: rank - 2 if rank > 2 else rank - 1}
        elif mask:
            yield {columns[0].of: shape, mask[1]: 0b11 << rank - 2 if rank > 2 else 1 << rank - 1}


def _cells(spec: Programmed) -> Iterator[Case]:
    """Of several shapes all but the first are small ones of its rank."""
    shapes, sizes = _extent_fields(spec)
    extents = [*_extents(len(sizes))] if sizes else [[]]
    for turn, shape in enumerate(_CELLS if shapes else extents):
        small = [list(islice(cycle(_SMALL), i, i + len(shape))) for i in range(1, len(shapes))]
        case = dict(zip(shapes, [shape, *small], strict=False)) | _axes(spec, len(shape), turn)
        yield case | dict(zip(sizes, extents[turn % len(extents)], strict=True))


def _axes(spec: Programmed, rank: int, turn: int) -> Case:
    """Axes that dims share out by a mask or a field: the last, the first, those between, all, every other, none."""
    for dim in spec.dims.values() if isinstance(spec, MapSpec) else ():
        axis, mask = (pattern.fullmatch(dim.axes or "") for pattern in (OF_AXIS, OF_MASK))
        if axis:
            return {axis[1]: turn % rank}
        if mask:
            all_axes = 2**rank - 1
            between = (all_axes & ~1 & ~(1 << rank - 1)) or 1
            masks = 1 << rank - 1, 1, between, 0, 0b01010101 & all_axes, all_axes, 1
            return {mask[1]: masks[turn % len(masks)]}
    return {}


def _extent_fields(spec: Programmed) -> tuple[list[str], list[str]]:
    """The shapes and the ints that dims run along."""
    of = dict.fromkeys(dim.of for dim in spec.dims.values() if dim.of in spec.descriptor)
    shapes, sizes = ([n for n in of if spec.descriptor[n].type == kind] for kind in ("shape", "int"))
    return shapes, sizes


def _extents(count: int) -> Iterator[list[int]]:
    """For so many dims of one axis each."""
    small = list(islice(cycle((2, 3, 5, 4)), count - 1))
    ones, twos = [1] * (count - 1), [2] * (count - 1)
    yield from ([*small, 33], [1, *ones], [*small, 16], [*ones, 300], [200, *twos], [0, *twos])
    if count > 1:
        yield [*twos, 0]


def _draw(spec: Programmed) -> dict[str, Drawn]:
    """How random problems of a map are drawn; rows follow their tiles."""
    if isinstance(spec, RowSpec):
        return {}
    shapes, sizes = _extent_fields(spec)
    draw: dict[str, Drawn] = {n: RangeSpec(low=0, high=70 if n in sizes[-2:] else 12) for n in sizes}
    masks = [match[1] for dim in spec.dims.values() if (match := OF_MASK.fullmatch(getattr(dim, "axes", None) or ""))]
    draw |= {mask: RangeSpec(low=0, high=15) for mask in masks}
    if len(shapes) == 1:
        return draw | {shapes[0]: RangeSpec(low=0, high=40, rank=(1, 4))}
    return draw | {n: RangeSpec(low=int(i > 0), high=4 if i else 12, rank=(3, 3)) for i, n in enumerate(shapes)}
