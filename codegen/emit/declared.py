"""What a plan's module declares, as values: the template prints them, `plan_classes` makes classes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any, NamedTuple

import baracuda.runtime as rt
from baracuda.runtime.plans.registry import by_element

from ..lower.body_op import BodyOp
from ..lower.list import ListOp
from ..lower.map_op import MapOp
from ..lower.op import DescriptorField, Op, RowOp, Tensor
from ..text import Call, Code, Name, packed, python

Values = dict[str, Any]  # by what is a Name

_ANNOTATION = {
    "shape": Code("tuple[int, ...]"),
    "kind": Code("str"),
    **{name: Code(name) for name in ("int", "float", "bool")},
}


class Declared(NamedTuple):
    """Members of the descriptor and the plan, and keywords of the function that makes the kernel table."""

    family: Family
    descriptor: Values
    plan: Values
    table: Values


def declared_of(op: Op) -> Declared:
    """What the module of `op` declares, without the defaults of its family."""
    family = FAMILIES[type(op)]
    descriptor, plan, table = family.declares(op)
    descriptor = {"_elements": op.elements, "_kinds": op.kinds_offered, **descriptor}
    descriptor["_requires"] = tuple(map(_requirement, op.checks))
    alike = op.promises == tuple((t.name, op.held_everywhere) for t in op.tensors if t.role != "in")
    shared = {
        "OP": str(op.name),
        "TENSORS": tuple(map(argument_of, op.tensors)),
        "CHECK_ORDER": op.check_order if op.check_order != tuple(t.name for t in op.tensors) else (),
        "RUNGS": op.held_everywhere if alike else (),
        "PROMISES": () if alike else dict(op.promises),
        "EXTENTS": op.extents,
        "GRADIENT": op.gradient,
        "DIRECTION": () if op.direction == ("backward" if op.gradient else "forward") else str(op.direction),
    }
    table |= {"contraction": op.contraction, "flush_subnormals": op.flush_subnormals}
    usual = {name: p.default for name, p in signature(family.table).parameters.items()}
    for name in {"tiles", "schedules"} & table.keys():
        if {*by_element(op.elements, table[name])} == {*by_element(op.elements, usual[name])}:
            del table[name]
    return Declared(
        family,
        _beyond(family.descriptor, descriptor),
        _beyond(family.plan, shared | plan),
        {Name(name): value for name, value in table.items() if value != usual[name]},
    )


def argument_of(t: Tensor) -> rt.Argument:
    """The plan's declaration of an argument."""
    return rt.Argument(t.name, t.role, t.over, t.dtypes, t.optional, t.layout, t.may_alias, t.doc)


def annotation(field: DescriptorField) -> Code:
    """The type of a descriptor's field."""
    return _ANNOTATION[field.kind]


def default(field: DescriptorField) -> Code:
    """The default of a descriptor's field, or nothing."""
    if field.same_as:
        return Code(f"rt.same_as({python(field.same_as)})")
    return Code("") if field.default is None else python(field.default)


def field_of(field: DescriptorField) -> Call:
    """The declaration of a descriptor's field."""
    value = default(field)
    return Call("field", (field.doc,), {"default": value} if value else {})


def table_of(op: Op, declared: Declared) -> Call:
    """What makes the rows of the kernel table."""
    return Call(declared.family.table.__name__, (Code(op.plan),), declared.table)


def run_line(op: Op) -> Code:
    """The first line of `run`."""
    arrays = [f"{t.name}: rt.Array{' = None' * bool(t.optional)}" for t in op.tensors]
    others = ["workspace: rt.Workspace = None", "stream: rt.Stream = None"]
    return packed("    def run(", ["self", "*", *arrays, *others], ") -> None:")


def array_names(op: Op) -> tuple[Code, ...]:
    """The arguments of `run` that are arrays."""
    return tuple(Code(t.name) for t in op.tensors)


def _requirement(check: Any) -> rt.Requirement | str:
    raises = getattr(rt, check.raises)
    return str(check.that) if raises is rt.InvalidProblem else rt.Requirement(check.that, raises)


def _beyond(base: type[Any], values: Mapping[str, Any]) -> Values:
    """The values that differ from the base class; where it has none, those that are not empty."""
    return {Name(name): value for name, value in values.items() if value != getattr(base, name, ())}


def _by_element(op: Op, of: Mapping[str, Iterable[object]]) -> tuple[str, ...]:
    """The tiles or schedules of each element type, in one order; those of some types only, with these."""
    left = {element: list(map(str, texts)) for element, texts in of.items()}
    merged = []
    while any(left.values()):
        heads = list(dict.fromkeys(texts[0] for texts in left.values() if texts))
        head = next((h for h in heads if not any(h in texts[1:] for texts in left.values())), heads[0])
        having = [element for element, texts in left.items() if texts[:1] == [head]]
        merged.append(head if having == [*op.elements] else " ".join((head, *having)))
        for element in having:
            del left[element][0]
    return tuple(merged)


def _row(op: RowOp) -> tuple[dict[str, Any], ...]:
    plan = {
        "SCALARS": tuple(s.name for s in op.scalars),
        "COLUMN_SUMS": op.column_flags,
        "ROW_REDUCTIONS": len(op.reductions),
    }
    table = {"arch": str(op.arch), "tiles": _by_element(op, dict(op.tiles))}
    return {"_shape": op.shape, "_cols": op.col_axes}, plan, table


def _map(op: MapOp) -> tuple[dict[str, Any], ...]:
    plan = {"AXES": _axes(op, op.axes), **{k.upper(): v for k, v in _walk(op).items()}}
    if op.passes:
        axes = {name: groups for of in op.passes for name, groups in of.axes}
        plan = {"AXES": _axes(op, {**dict(op.axes), **axes}.items()), **_passes(op)}
    descriptor = {"_dims": dict(op.dims), "_axes": dict(op.shares), "_space": op.space}
    return descriptor, plan, {"arch": str(op.arch), "schedules": _schedules(op)}


def _schedules(op: MapOp | ListOp) -> tuple[str, ...]:
    return _by_element(op, {e: [x.schedule for x in op.entries if x.element == e] for e in op.elements})


def _axes(op: MapOp, axes: Iterable[tuple[Name, Any]]) -> dict[Name, Any]:
    """Of arrays that have not the axes of all cells."""
    return {name: groups for name, groups in axes if groups != op.space}


def _passes(op: MapOp) -> dict[str, Any]:
    """What is declared of several walks, and of what they leave for each other."""
    own = {t.name for t in op.tensors}
    held = {t.name: t.dtypes[0] for of in op.passes for t in of.tensors if t.name not in own}
    return {"HELD": held, "PASSES": tuple(_pass(of, op) for of in op.passes)}


def _walk(op: MapOp) -> dict[str, Any]:
    """What is declared of one walk over cells."""
    return {
        "summed": op.summed,
        "placed": dict(op.placed),
        "indices": op.indices,
        "cell_indices": op.cells.queried,
        "sizes": op.sizes,
        "scalars": tuple(s.name for s in op.scalars),
        "sums": op.sum_flags,
        "sum_bytes": op.sum_bytes,
        "sum_outputs": op.sum_outputs,
        "copies": dict(op.copies),
    }


def _pass(op: MapOp, of: MapOp) -> rt.MapPass:
    """A pass of the op `of`."""
    writes = tuple(t.name for t in op.tensors if t.role != "in")
    said = {name: value for name, value in _walk(op).items() if value != {}}
    if not op.sums or op.sum_outputs == writes:
        del said["sum_outputs"]
    reads = tuple(t.name for t in op.tensors if t.role != "out")
    return rt.MapPass(reads, writes, op.served, None if op.space == of.space else op.space, **said)


def _list(op: ListOp) -> tuple[dict[str, Any], ...]:
    walk = ("scalars", "sizes", "sums", "sum_bytes")
    plan = {name.upper(): value for name, value in _walk(op).items() if name in walk}
    if op.passes:
        plan = _passes(op)
    descriptor = {"_dims": dict(op.dims), "_space": op.space}
    return descriptor, plan, {"arch": str(op.arch), "schedules": _schedules(op)}


def _body(op: BodyOp) -> tuple[dict[str, Any], ...]:
    rows = tuple(
        rt.BodySchedule(str(r.arch), r.elements, str(r.schedule), r.fits, r.layout, r.first, r.math) for r in op.rows
    )
    plan = {
        "LAYOUT_AXES": {name: dict(axes) for name, axes in op.layouts},
        "BODIES": op.bodies,
        "SHAPES": dict(op.shapes),
        "SETTINGS": {s.name: s.formula for s in op.settings},
        "TERMS": dict(op.terms),
        "KERNELS": op.kernels,
        "WORKSPACE": tuple(rt.Scratch(w.name, w.dtype, w.size) for w in op.workspace),
        "MAPS": {m.arch: m.boxes for m in op.maps},
        "SCHEDULES": rows,
    }
    return {}, plan, {}


class Family(NamedTuple):
    """A family's base classes, the function that makes its kernel table, and what its modules declare."""

    plan: type[Any]
    descriptor: type[rt.Descriptor]
    table: Callable[..., Iterable[rt.Registered]]
    declares: Callable[[Any], tuple[dict[str, Any], ...]]


FAMILIES: dict[type[Op], Family] = {
    RowOp: Family(rt.RowPlan, rt.RowDescriptor, rt.row_kernels, _row),
    MapOp: Family(rt.MapPlan, rt.MapDescriptor, rt.map_kernels, _map),
    ListOp: Family(rt.ListPlan, rt.MapDescriptor, rt.map_kernels, _list),
    BodyOp: Family(rt.BodyPlan, rt.Descriptor, rt.body_kernels, _body),
}
