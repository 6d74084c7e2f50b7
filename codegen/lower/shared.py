"""What lowering decides alike for every family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from baracuda.runtime import Gradient
from baracuda.runtime.arrays.element import ElementKind

from ..conditions.parse import read_condition
from ..spec.spec import Arch, ArchSpec, FieldSpec, OpSpec, TensorSpec, arch_number
from ..text import Code, Name, Text, names, python, wrapped
from .extents import extents_of
from .op import Allowance, Check, DescriptorField, Scalar, Tensor

_ANNOTATION = {"shape": Code("tuple[int, ...]"), "int": Code("int"), "float": Code("float"), "bool": Code("bool")}
_WORD = {
    "float": (Code("acc_t"), Code("double")),
    "int": (Code("i64"), Code("long long")),
    "bool": (Code("bool"), Code("long long")),
}


def shared_fields(
    spec: OpSpec, spec_path: str, arguments: tuple[Tensor, ...], described: Mapping[str, str], told: str = ""
) -> dict[str, Any]:
    """The fields of `Op`; `described` says of what shape each argument is, `told` what the names in shapes are."""
    tensors = tuple(replace(t, shape=described[t.name]) for t in arguments)
    return {
        "name": Name(spec.op),
        "plan": Name(spec.plan),
        "descriptor": Name(spec.plan.removesuffix("Plan") + "Descriptor"),
        "category": Name(spec.category),
        "kind": Name(spec.kind),
        "direction": Name(spec.direction),
        "family": Name(spec.family),
        "doc": Text(spec.doc),
        "formula": tuple(map(Text, spec.formula.strip().splitlines())),
        "source": Text(spec.source),
        "spec_path": Text(spec_path),
        "template_path": Text(f"templates/{spec.family}.cu.jinja"),
        "allowances": tuple((arch, _allowance(arch, s)) for arch, s in spec.arch.items()),
        "contraction": spec.precision.contraction,
        "flush_subnormals": spec.precision.subnormals == "flush",
        "elements": names(spec.dtypes),
        "shapes_told": told,
        "run_lines": tuple(_run_lines(tensors, told)),
        "fields": tuple(_field(n, f) for n, f in spec.descriptor.items()),
        "checks": tuple(_check(spec, r) for r in spec.require),
        "tensors": tensors,
        "check_order": spec.check_order or tuple(spec.arguments),
        "promises": tuple((Name(n), names(r)) for n, r in spec.reproducibility.items()),
        "extents": extents_of(spec),
        "gradient": spec.gradient and Gradient(spec.gradient.of, spec.gradient.cotangents, spec.gradient.wrt),
    }


def _check(spec: OpSpec, requirement: Any) -> Check:
    return Check(read_condition(requirement.that, spec.descriptor), Name(requirement.raises))


def scalar(name: str, field: FieldSpec) -> Scalar:
    """How a field of the descriptor travels to the kernel."""
    return Scalar(Name(name), *_WORD[field.type])


def first_arch(spec: OpSpec) -> Arch:
    """The least architecture that the op runs on."""
    return min(spec.arch, key=arch_number)


def _allowance(arch: Arch, spec: ArchSpec) -> Allowance:
    given = {layout: {arch: said} if isinstance(said, int) else said for layout, said in spec.spill_bytes.items()}
    spills = tuple((layout, least, count) for layout, by_device in given.items() for least, count in by_device.items())
    return Allowance(spec.registers, spec.shared_bytes, spec.stack_bytes, spills, in_turns="turns" in spec.needs)


def lower_tensor(name: str, spec: TensorSpec, op: OpSpec, *, over: str, struct: str) -> Tensor:
    """`over` and `struct` are the family's: what the tensor has values for, and the kernel's type for it."""
    role = "out" if name in op.outputs else "in"
    if any(t.updates == name for t in op.outputs.values()):
        role = "inout"
    chosen = len(spec.dtype) > 1
    kind = "int" if spec.dtype[0].startswith("i") else "float"
    ctypes = {"T": "T", "acc": "acc_of<T>", "i64": "i64"}
    only = spec.dtype[0]
    default = python(float(spec.default or 0) if kind == "float" else int(spec.default or 0))
    return Tensor(
        name=Name(name),
        role=role,
        over=over,
        struct=Code(struct),
        ctype=Code(f"{name}_type<T>" if chosen else ctypes.get(only) or ElementKind(only).row.cuda),
        dtypes=tuple(spec.dtype),
        optional=spec.optional or "",
        absent=Code(f"acc_t({default})") if kind == "float" else default,
        kind=kind,
        layout=spec.layout,
        may_alias=tuple(spec.may_alias),
        doc=Text(spec.doc),
    )


def _field(name: str, spec: FieldSpec) -> DescriptorField:
    default: Any = spec.default
    if default is not None and spec.type == "float":
        default = float(default)
    lines = wrapped(f"{name}: {spec.doc}", 112, "    ")
    same = f"rt.same_as({python(spec.same_as)})" if spec.same_as else ""
    text = Code(same) if same or default is None else python(default)
    return DescriptorField(Name(name), _ANNOTATION[spec.type], Name(spec.type), lines, text)


def _run_lines(arguments: tuple[Tensor, ...], told: str) -> Iterable[Text]:
    for t in arguments:
        yield from t.told(f"given exactly when {t.optional}")
    yield Text("workspace: any contiguous array of at least `workspace_bytes` bytes, on the device of the others")
    yield Text("stream: a raw handle or a stream object; by default the current one of the arrays' library")
    yield Text("")
    yield from type_lines(arguments, told)
    yield Text("Raises InvalidProblem, Unsupported, BufferTooSmall, MisalignedOperand or WorkspaceTooSmall.")


def type_lines(arguments: Iterable[Tensor], told: str) -> tuple[Text, ...]:
    """What the names mean that documentation shows of shapes and types."""
    wide = any("acc" in t.dtypes for t in arguments)
    types = f"T is the descriptor's element{', acc f64 where that is f64, else f32' if wide else ''}"
    return wrapped(f"Here {'; '.join([told, types] if told else [types])}.", 112)
