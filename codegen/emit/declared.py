"""What a plan's module declares, as values: the template prints them, `plan_classes` makes classes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import baracuda.runtime as rt

from ..lower.op import DescriptorField, Op, Tensor
from ..spec.family import Family, families
from ..text import Code, Name, python

Values = dict[str, Any]  # by what is a Name

_ANNOTATION = {
    "shape": Code("tuple[int, ...]"),
    "kind": Code("str"),
    **{name: Code(name) for name in ("int", "float", "bool")},
}


class Declared(NamedTuple):
    """Members of the descriptor and the plan, and arguments of the function that makes the kernel table."""

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
    shared = {
        "OP": str(op.name),
        "DESCRIPTOR": Code(op.descriptor),
        "TENSORS": tuple(map(argument_of, op.tensors)),
        "CHECK_ORDER": op.check_order if op.check_order != tuple(t.name for t in op.tensors) else (),
        "PROMISES": dict(op.promises),
        "EXTENTS": op.extents,
        "GRADIENT": op.gradient,
    }
    identity = {"category": str(op.category), "op": str(op.name), "direction": str(op.direction)}
    table = {**identity, "rungs": op.held_everywhere, **table}
    return Declared(
        family,
        _beyond(family.descriptor, descriptor),
        _beyond(family.plan, shared | plan),
        {Name(name): value for name, value in table.items()},
    )


def argument_of(t: Tensor) -> rt.Argument:
    """The plan's declaration of an argument."""
    return rt.Argument(t.name, t.role, t.over, t.dtypes, t.optional, t.layout, t.may_alias)


def annotation(field: DescriptorField) -> Code:
    """The type of a descriptor's field."""
    return _ANNOTATION[field.kind]


def default(field: DescriptorField) -> Code:
    """The default of a descriptor's field, or nothing."""
    if field.same_as:
        return Code(f"rt.same_as({python(field.same_as)})")
    return Code("") if field.default is None else python(field.default)


def array_names(op: Op) -> tuple[Code, ...]:
    """The arguments of `run` that are arrays."""
    return tuple(Code(t.name) for t in op.tensors)


def _requirement(check: Any) -> rt.Requirement:
    return rt.Requirement(check.that, getattr(rt, check.raises))


def _beyond(base: type[Any], values: Mapping[str, Any]) -> Values:
    """The values that differ from the base class; where it has none, those that are not empty."""
    return {Name(name): value for name, value in values.items() if value != getattr(base, name, ())}
