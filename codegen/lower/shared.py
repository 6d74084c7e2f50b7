"""What lowering decides alike for every family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from baracuda.runtime import Gradient

from ..conditions.parse import read_condition
from ..spec.family import family_of
from ..spec.parts import ArchSpec, FieldSpec, TensorSpec
from ..spec.spec import OpSpec
from ..spec.types import Arch, arch_number
from ..text import Name, Text, names
from .extents import extents_of
from .op import Allowance, Check, DescriptorField, Op, Scalar, Tensor


def shared_fields(
    spec: OpSpec, spec_path: str, arguments: tuple[Tensor, ...], shapes: Mapping[str, str]
) -> dict[str, Any]:
    """The fields of `Op`; `shapes` has that of each argument, as the spec writes it."""
    tensors = tuple(replace(t, shape=shapes[t.name]) for t in arguments)
    return {
        "name": Name(spec.op),
        "plan": Name(spec.plan),
        "descriptor": Name(spec.plan.removesuffix("Plan") + "Descriptor"),
        "category": Name(spec.category),
        "direction": Name(spec.direction),
        "family": Name(spec.family),
        "doc": Text(spec.doc),
        "formula": tuple(map(Text, spec.formula.strip().splitlines())),
        "source": Text(spec.source),
        "spec_path": Text(spec_path),
        "template_path": Text(f"templates/{family_of(spec).templates[0]}"),
        "allowances": tuple((arch, _allowance(arch, s)) for arch, s in spec.arch.items()),
        "contraction": spec.precision.contraction,
        "flush_subnormals": spec.precision.subnormals == "flush",
        "elements": names(spec.dtypes),
        "fields": tuple(_field(n, f) for n, f in spec.descriptor.items()),
        "checks": tuple(_check(spec, r) for r in spec.require),
        "tensors": tensors,
        "check_order": spec.check_order or tuple(spec.arguments),
        "promises": tuple((Name(n), names(r)) for n, r in spec.reproducibility.items()),
        "numerics": spec.numerics,
        "extents": extents_of(spec),
        "gradient": spec.gradient and Gradient(spec.gradient.of, spec.gradient.cotangents, spec.gradient.wrt),
    }


def _check(spec: OpSpec, requirement: Any) -> Check:
    return Check(read_condition(requirement.that, spec.descriptor), Name(requirement.raises))


def scalar(name: str, field: FieldSpec) -> Scalar:
    """How a field of the descriptor travels to the kernel."""
    return Scalar(Name(name), field.type)


def first_arch(spec: OpSpec) -> Arch:
    """The least architecture that the op runs on."""
    return min(spec.arch, key=arch_number)


def _allowance(arch: Arch, spec: ArchSpec) -> Allowance:
    limits = {layout: {arch: n} if isinstance(n, int) else n for layout, n in spec.spill_bytes.items()}
    spills = tuple((layout, least, count) for layout, by_device in limits.items() for least, count in by_device.items())
    return Allowance(spec.registers, spec.shared_bytes, spec.stack_bytes, spills, in_turns="turns" in spec.needs)


def lower_tensor(name: str, spec: TensorSpec, op: OpSpec, *, over: str) -> Tensor:
    """`over` is what the tensor has values for, as the family names it."""
    role = "out" if name in op.outputs else "in"
    if any(t.updates == name for t in op.outputs.values()):
        role = "inout"
    kind = op.sort_of(spec)
    return Tensor(
        name=Name(name),
        role=role,
        over=over,
        dtypes=tuple(spec.dtype),
        optional=spec.optional or "",
        default={"float": float, "int": int, "bool": bool, "complex": float}[kind](spec.default or 0),
        kind=kind,
        layout=spec.layout,
        may_alias=tuple(spec.may_alias),
        doc=Text(spec.doc),
    )


def _field(name: str, spec: FieldSpec) -> DescriptorField:
    default: Any = spec.default
    if default is not None and spec.type == "float":
        default = float(default)
    return DescriptorField(Name(name), Name(spec.type), Text(spec.doc), default, spec.same_as or "")


def in_one_list(op: Op, of: Mapping[str, Iterable[object]]) -> tuple[str, ...]:
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

