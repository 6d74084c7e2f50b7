"""What a plan's module declares, as values: the template prints them, `plan_classes` makes classes of them."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, NamedTuple

import baracuda.runtime as rt
from baracuda.runtime.plans.registry import by_element

from ..lower.op import DescriptorField, Op, Tensor
from ..spec.family import Family, families
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
    family = families()[op.family]
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
        "NUMERICS": op.numerics,
        "EXTENTS": op.extents,
        "GRADIENT": op.gradient,
        "DIRECTION": () if op.direction == ("backward" if op.gradient else "forward") else str(op.direction),
    }
    table |= {"contraction": op.contraction, "flush_subnormals": op.flush_subnormals}
    usual = {name: p.default for name, p in signature(family.table).parameters.items()}
    if "schedules" in table and {*by_element(op.elements, table["schedules"])} == {
        *by_element(op.elements, usual["schedules"])
    }:
        del table["schedules"]
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
