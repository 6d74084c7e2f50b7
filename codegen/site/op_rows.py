"""The tables of an op's page: arguments, fields, requirements, guarantees, bounds and resource limits."""

from __future__ import annotations

from collections.abc import Mapping

from baracuda.runtime import ElementKind
from baracuda.runtime.plans.formula import in_words
from baracuda.runtime.plans.sku import RUNGS

from ..emit.declared import annotation
from ..lower.op import Op
from ..spec.load import Loaded
from ..spec.parts import ArchSpec, TensorSpec
from ..spec.spec import OpSpec
from ..spec.types import Arch
from .table import Ready, Row, code, plain

_STRIDES = {"any": "any", "contiguous": "contiguous", "inner": "any, the last 1"}


def argument_rows(op: Op, spec: OpSpec) -> list[Row]:
    """The arrays of `run`, in the order of its signature."""
    return [
        {
            "array": code(t.name),
            "role": t.role,
            "shape": _shape(spec.tensors[t.name]),
            "types": ", ".join(t.dtypes),
            "strides": _STRIDES[t.layout],
            "given": Ready(f"exactly when {code(t.optional)}") if t.optional else "always",
            "may be": Ready(", ".join(map(code, t.may_alias))),
            "what it is": t.doc,
        }
        for t in op.tensors
    ]


def _shape(tensor: TensorSpec) -> Ready:
    return Ready(" or ".join(map(code, tensor.shapes_written)))


def field_rows(op: Op, spec: OpSpec) -> list[Row]:
    """The descriptor's fields."""
    rows = [
        {
            "field": code(field.name),
            "type": code(annotation(field)),
            "default": _default(spec, field.name),
            "what it means": spec.descriptor[field.name].doc,
        }
        for field in op.fields
    ]
    named = Ready(f"one of {', '.join(map(code, op.elements))}")
    return [*rows, {"field": code("element"), "type": code("str"), "default": "", "what it means": named}]


def _default(spec: OpSpec, name: str) -> Ready:
    field = spec.descriptor[name]
    if field.same_as:
        return Ready(f"as {code(field.same_as)}")
    return code("" if field.default is None else str(field.default))


def requirement_rows(op: Op) -> list[Row]:
    """The requirements on fields, in the order they are checked."""
    return [{"must hold": code(in_words(check.that)), "else": code(check.raises)} for check in op.checks]


def promise_rows(op: Op) -> list[Row]:
    """The bit-level guarantees of each output."""
    return [
        {"output": code(output), **{rung.replace("_", " "): rung in rungs for rung in RUNGS}}
        for output, rungs in op.promises
    ]


def precision_rows(spec: OpSpec) -> list[Row]:
    """For each floating element type, the accumulator type and the constants of outputs' bounds."""
    others = {name: of for name, of in spec.by_kind.items() if of.precision.bound != spec.precision.bound}
    own = {f" of {code(name)}": of for name, of in others.items()}
    rows: list[Row] = []
    for kind in (kind for kind in map(ElementKind, spec.dtypes) if kind.row.unit_roundoff):
        by_bound: dict[tuple[float, float], list[str]] = {}
        for which, of in {"": spec, **own}.items():
            for output in of.outputs:
                bound = of.bound_of(output, kind)
                by_bound.setdefault((bound.c1, bound.c2), []).append(code(output) + which)
        for (c1, c2), outputs in by_bound.items():
            row = {"element": str(kind), "output": ", ".join(outputs), "sums in": str(kind.row.acc), "c1": c1, "c2": c2}
            rows.append(row)
    return rows


def allowance_rows(spec: OpSpec) -> list[Row]:
    """The resource limits of kernels per architecture, where the spec has them."""
    return [_allowance(arch, arch_spec) for arch, arch_spec in spec.arch.items() if arch_spec != ArchSpec()]


def _by_device(limit: int | Mapping[Arch, int]) -> str:
    if isinstance(limit, int):
        return str(limit)
    return " ".join(f"{count} from {plain(least)} on" for least, count in limit.items())


def _allowance(arch: str, arch_spec: ArchSpec) -> Row:
    spills = ", ".join(f"{layout} {_by_device(limit)}" for layout, limit in arch_spec.spill_bytes.items())
    return {
        "architecture": plain(arch),
        "needs": ", ".join(arch_spec.needs),
        "registers at most": arch_spec.registers,
        "shared bytes at most": arch_spec.shared_bytes,
        "stack bytes": arch_spec.stack_bytes or None,
        "may spill, bytes by layout": spills,
    }


def relation_of(loaded: dict[str, Loaded], name: str) -> tuple[str, ...]:
    """The op that `name` differentiates and those that differentiate it."""
    gradient = loaded[name].spec.gradient
    forward = (gradient.of,) if gradient is not None and gradient.of in loaded else ()
    return (*forward, *(n for n, o in loaded.items() if o.spec.gradient is not None and o.spec.gradient.of == name))
