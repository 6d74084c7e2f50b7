"""Plan classes made from lowered ops, without printing or executing Python.

`compile` and `check` use them to select kernels and list their sources for specs that nobody has chosen to trust.
Conditions are evaluated by walking their trees; classes consist of data and the functions below.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import baracuda.runtime as rt
from baracuda.runtime.computing import NO_VALUE
from baracuda.runtime.values import shown

from ..conditions.values import meaning
from ..lower.body_op import BodyOp, Kernel
from ..lower.map_op import MapOp
from ..lower.op import Check, DescriptorField, Op, RowOp, Tensor
from .output import PACKAGE

Rows = tuple[rt.Registered, ...]
_MISSING = object()
MAX_EVALUATED = 14_000_000  # characters of expressions, by one plan class: about a second; attention takes 12 million


def rows_of(op: Op, text: str, package: str = PACKAGE) -> Rows:
    """The rows of the kernel table for `op`, generated with `text` as its kernels into `package`."""
    file = rt.SourceFile(f"{package}.{op.category}", f"{op.name}.cu", op.contraction, op.flush_subnormals, text)
    return tuple(
        _FAMILIES[type(op)].rows(
            op,
            file,
            category=str(op.category),
            op=str(op.name),
            direction=rt.Direction(op.direction),
            rungs=op.held_everywhere,
        )
    )


def plan_of(op: Op, rows: Rows, package: str = PACKAGE) -> type[Any]:
    """The plan class of `op`, whose kernels are `rows`."""
    family, value = _FAMILIES[type(op)], _Values(op.plan)

    def kernels(cls: type[Any], element: rt.ElementKind | str | None = None) -> Rows:
        return tuple(row for row in rows if element is None or row.sku.element == element)

    shared = {
        "__module__": f"{package}.{op.category}.{op.name}",
        "__doc__": str(op.doc),
        "OP": str(op.name),
        "DESCRIPTOR": _descriptor(op, value, package),
        "ARGUMENTS": {t.name: argument_of(t) for t in op.tensors},
        "CHECK_ORDER": op.check_order,
        "PROMISES": dict(op.promises),
        "EXTENTS": op.extents,
        "GRADIENT": op.gradient,
        "kernels": classmethod(kernels),
    }
    return type(str(op.plan), (family.plan,), {**shared, **family.members(op, value)})


def argument_of(t: Tensor) -> rt.Argument:
    """The row of the plan's argument table."""
    return rt.Argument(
        t.name, t.role, t.over, dtypes=t.dtypes, optional=t.optional, layout=t.layout, may_alias=t.may_alias
    )


def _row_members(op: RowOp, _: _Values) -> dict[str, Any]:
    return {
        "SCALARS": op.scalar_codes,
        "CHOSEN": op.chosen_names,
        "COLUMN_SUMS": op.column_flags,
        "ROW_REDUCTIONS": len(op.reductions),
    }


def _map_members(op: MapOp, _: _Values) -> dict[str, Any]:
    return {
        "AXES": dict(op.axes),
        "SUMMED": op.summed,
        "INDICES": op.indices,
        "CELL_INDICES": op.cells.indices,
        "SIZES": op.sizes,
        "SCALARS": op.scalar_codes,
        "CHOSEN": op.chosen_names,
        "SUMS": op.sum_flags,
        "SUM_OUTPUTS": op.sum_outputs,
        "COPIES": dict(op.copies),
    }


def _body_members(op: BodyOp, value: _Values) -> dict[str, Any]:
    return {
        "FIELDS": op.scalar_codes,
        "CHOSEN": op.chosen_names,
        "LAYOUTS": op.layout_names,
        "LAYOUT_AXES": {name: dict(axes) for name, axes in op.layouts},
        "WORKSPACE": op.scratch_types,
        "BODIES": op.bodies,
        "SERVES": tuple(_serves(op, value)),
        "MAPS": {m.arch: tuple(rt.Box(tensor, value.of(box)) for tensor, box in m.boxes) for m in op.maps},
        "shapes_of": staticmethod(value.table({s.name: s.python for s in op.shapes})),
        "_settings_of": staticmethod(value.table({s.name: s.python for s in op.settings})),
        "_add_terms": staticmethod(_terms(op, value)),
        "_scratch_of": staticmethod(value.list(w.python for w in op.workspace)),
        "_kernels_of": staticmethod(_kernels(op, value)),
    }


class TooMuch(rt.BaracudaError):
    """Evaluation exceeded the budget of a plan class."""


class _Values:
    """Expressions as functions of descriptor, schedule numbers and settings; errors name the expression.

    Together they may evaluate `left` characters of text, a measure of time that is the same everywhere.
    """

    def __init__(self, plan: str) -> None:
        self.plan, self.left = plan, MAX_EVALUATED

    def of(self, text: str) -> Callable[..., Any]:
        value = meaning(str(text))

        def compute(d: Any, s: Any = None, v: Any = None) -> Any:
            self.left -= len(text)
            if self.left < 0:
                raise TooMuch(f"{self.plan}: needs more than {MAX_EVALUATED} characters of expressions evaluated")
            try:
                return value({"d": d, "s": s, "v": v, "self": d})
            except NO_VALUE as error:
                raise rt.InvalidProblem(f"{self.plan}: {text} has no value: {error}; here {shown(d)}") from None

        return compute

    def list(self, texts: Iterable[str]) -> Callable[..., tuple[Any, ...]]:
        parts = [self.of(text) for text in texts]
        return lambda d, s=None, v=None: tuple([part(d, s, v) for part in parts])

    def table(self, texts: Mapping[str, str | tuple[str, ...]]) -> Callable[[Any], dict[str, Any]]:
        """Texts as values, tuples of texts as tuples of values."""
        parts = {name: self.of(t) if isinstance(t, str) else self.list(t) for name, t in texts.items()}
        return lambda d: {name: part(d) for name, part in parts.items()}


def _serves(op: BodyOp, value: _Values) -> Iterable[rt.Serves]:
    for row in op.rows:
        if row.serves:
            yield rt.Serves(row.arch, row.elements, str(row.schedule), row.serves, value.of(row.python))


def _terms(op: BodyOp, value: _Values) -> Callable[[Any, Any, Any], None]:
    terms = {name: value.of(text) for name, text in op.terms}

    def add(d: Any, s: Any, v: Any) -> None:
        for name, term in terms.items():
            setattr(v, name, term(d, s, v))

    return add


def _kernels(op: BodyOp, value: _Values) -> Callable[[Any, Any, Any], tuple[rt.BodyKernel, ...]]:
    made = [(k, value.list(k.grid), value.of(k.threads), value.of(k.shared)) for k in op.kernels]

    def kernel(launch: Kernel, grid: Any, threads: Any, shared: Any, *names: Any) -> rt.BodyKernel:
        return rt.BodyKernel(launch.name, grid(*names), threads(*names), shared(*names), launch.overlaps)

    return lambda d, s, v: tuple([kernel(*of, d, s, v) for of in made])


class _Fields(rt.Descriptor):
    """What a dataclass with these fields would do, without compiling code from their names."""

    _defaults: ClassVar[dict[str, Any]]

    def __init__(self, **given: Any) -> None:
        values = {**self._defaults, **given}
        if unknown := [name for name in values if name not in self._defaults]:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]!r}")
        if missing := [name for name, value in values.items() if value is _MISSING]:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self._defaults])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._defaults)
        return f"{type(self).__name__}({shown})"


def _descriptor(op: Op, value: _Values, package: str) -> type[Any]:
    family = _FAMILIES[type(op)]
    members: dict[str, Any] = {
        "__module__": f"{package}.{op.category}.{op.name}",
        "_plan": str(op.plan),
        "_elements": tuple(map(rt.ElementKind, op.elements)),
        "_types": {f.name: getattr(rt, f"as_{f.kind}") for f in op.fields},
        "_defaults": {**{f.name: _default(f) for f in op.fields}, "element": _MISSING},
        "_check": _checks(op, value),
    }
    return type(str(op.descriptor), (_Fields, family.descriptor), {**members, **family.described(op, value)})


def _default(field: DescriptorField) -> Any:
    """The value of a default's text."""
    if not field.default:
        return _MISSING
    match ast.parse(str(field.default), mode="eval").body:
        case ast.Call(args=[ast.Constant(value=str() as other)]):
            return rt.same_as(other)
        case node:
            return ast.literal_eval(node)


def _checks(op: Op, value: _Values) -> Callable[[Any], None]:
    requirements: list[tuple[Check, Callable[..., Any]]] = [(c, value.of(c.python)) for c in op.checks]

    def check(self: Any) -> None:
        for c, holds in requirements:
            if not holds(self):
                raise self._violated(getattr(rt, c.raises), str(c.that), c.shown)
        if isinstance(self, rt.MapDescriptor):
            self._check_extents()
        self._check_element()

    return check


def _row_table(op: RowOp, file: rt.SourceFile, /, **shared: Any) -> Iterator[rt.Registered]:
    tiles = {rt.ElementKind(element): tiles for element, tiles in op.tiles}
    return rt.row_kernels(file, **shared, arch=str(op.arch), tiles=tiles)


def _row_described(op: RowOp, value: _Values) -> dict[str, Any]:
    axes = value.of(op.col_axes)
    return {"_shape": str(op.shape), "_col_axes": lambda self: axes(self)}


def _map_table(op: MapOp, file: rt.SourceFile, /, **shared: Any) -> Iterator[rt.Registered]:
    schedules = {rt.ElementKind(entry.element): entry.schedule for entry in op.entries}
    return rt.map_kernels(file, **shared, arch=str(op.arch), schedules=schedules)


def _map_described(op: MapOp, _: _Values) -> dict[str, Any]:
    return {"_dims": dict(op.dims), "_space": op.space}


def _body_table(op: BodyOp, file: rt.SourceFile, /, **shared: Any) -> Iterator[rt.Registered]:
    schedules = [
        (str(row.arch), tuple(map(rt.ElementKind, row.elements)), row.schedule, str(row.layout) or None)
        for row in op.rows
    ]
    return rt.body_kernels(file, **shared, schedules=schedules, first=op.first)


def _body_described(op: BodyOp, _: _Values) -> dict[str, Any]:
    return {}


class _Family(NamedTuple):
    """A family's plans: base classes, declarations, and the kernel table."""

    plan: type[Any]
    members: Callable[[Any, _Values], dict[str, Any]]
    descriptor: type[rt.Descriptor]
    described: Callable[[Any, _Values], dict[str, Any]]
    rows: Callable[..., Iterator[rt.Registered]]


_FAMILIES: dict[type[Op], _Family] = {
    RowOp: _Family(rt.RowPlan, _row_members, rt.RowDescriptor, _row_described, _row_table),
    MapOp: _Family(rt.MapPlan, _map_members, rt.MapDescriptor, _map_described, _map_table),
    BodyOp: _Family(rt.BodyPlan, _body_members, rt.Descriptor, _body_described, _body_table),
}
