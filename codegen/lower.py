"""OpSpec -> Op: settle names, roles and the passes over a row."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from baracuda.runtime.element import ElementKind

from .conditions import fields_of, read_condition, to_python
from .consistency import kinds_of, scope_of
from .model import Allowance, Check, DescriptorField, Entry, Method, Op, Scalar, Tensor
from .passes import schedule
from .program import parse, to_source
from .program.tree import Query, walk
from .spec import ArchSpec, FieldSpec, OpSpec, TensorSpec
from .tiles import tiles

_ANNOTATION = {"shape": "tuple[int, ...]", "int": "int", "float": "float", "bool": "bool"}
_WORD = {"float": ("acc_t", "double"), "int": ("i64", "long long"), "bool": ("bool", "long long")}
_STRUCT = {"element": "PerElement", "row": "PerRow", "col": "PerCol"}


def lower(spec: OpSpec, spec_path: str) -> Op:
    """Return the decisions that `spec` (already found consistent) leads to."""
    rows, cols = _row_and_col(spec)
    lines = parse(spec.program, scope_of(spec))
    kinds = kinds_of(spec, lines)
    over = {frozenset({rows, cols}): "element", frozenset({rows}): "row", frozenset({cols}): "col"}
    tensors = {n: _tensor(n, t, spec, over[frozenset(t.dims)]) for n, t in spec.tensors.items()}
    plan = schedule(lines, spec, tensors, kinds, rows, cols)
    arguments = tuple(tensors[name] for name in spec.arguments)
    conditions = [read_condition(r.that, spec.descriptor) for r in spec.require]
    col_axes = read_condition(spec.dims[cols].axes, spec.descriptor)
    arch = min(spec.arch, key=lambda a: int(a[3:].rstrip("a")))
    return Op(
        name=spec.op,
        plan=spec.plan,
        descriptor=spec.plan.removesuffix("Plan") + "Descriptor",
        category=spec.category,
        kind=spec.kind,
        direction=spec.direction,
        family=spec.family,
        doc=spec.doc,
        formula=tuple(spec.formula.strip().splitlines()),
        source=spec.source,
        program=tuple(f"{line.name} = {to_source(line.expr)}" for line in lines),
        spec_path=spec_path,
        template_path=f"templates/{spec.family}.cu.jinja",
        arch=arch,
        allowance=_allowance(spec.arch[arch]),
        contraction=spec.precision.contraction,
        flush_subnormals=spec.precision.subnormals == "flush",
        methods=tuple(_methods(arguments, spec)),
        fields=tuple(_field(n, f) for n, f in spec.descriptor.items()),
        checks=tuple(
            Check(c, to_python(c), r.raises, fields_of(c)) for c, r in zip(conditions, spec.require, strict=True)
        ),
        needs_math=any("math." in to_python(c) for c in [*conditions, col_axes]),
        shape=spec.dims[cols].of,
        rows=rows,
        cols=cols,
        col_axes=to_python(col_axes),
        tensors=arguments,
        check_order=spec.check_order or tuple(spec.arguments),
        scalars=tuple(
            Scalar(n, *_WORD[f.type])
            for n, f in spec.descriptor.items()
            if f.type != "shape" and n in plan.names_read
        ),
        passes=plan.passes,
        columns=plan.columns,
        entries=tuple(_entries(spec, arguments, len(plan.passes[-1].column_sums))),
        promises=tuple((n, tuple(r)) for n, r in spec.reproducibility.items()),
        row_index=any(isinstance(e, Query) and (e.what, e.of) == ("index", rows) for x in lines for e in walk(x.expr)),
    )


def _allowance(spec: ArchSpec) -> Allowance:
    return Allowance(spec.registers, spec.shared_bytes, spec.stack_bytes, tuple(spec.spill_bytes.items()))


def _row_and_col(spec: OpSpec) -> tuple[str, str]:
    rows = next(n for n, d in spec.dims.items() if d.axes == "rest")
    return rows, next(n for n in spec.dims if n != rows)


def _tensor(name: str, spec: TensorSpec, op: OpSpec, over: str) -> Tensor:
    role = "out" if name in op.outputs else "in"
    if any(t.updates == name for t in op.outputs.values()):
        role = "inout"
    chosen = len(spec.dtype) > 1
    kind = "int" if spec.dtype[0].startswith("i") else "float"
    ctypes = {"T": "T", "acc": "acc_of<T>", "i64": "i64"}
    only = spec.dtype[0]
    default = repr(float(spec.default or 0)) if kind == "float" else repr(int(spec.default or 0))
    return Tensor(
        name=name,
        role=role,
        over=over,
        struct=_STRUCT[over],
        ctype=f"{name}_of<T>" if chosen else ctypes.get(only) or ElementKind(only).row.cuda,
        dtypes=tuple(spec.dtype),
        macro=f"BARACUDA_{name.upper()}" if chosen else "",
        optional=spec.optional or "",
        absent=f"acc_t({default})" if kind == "float" else default,
        kind=kind,
        layout=spec.layout,
        may_alias=tuple(spec.may_alias),
        doc=spec.doc,
    )


def _field(name: str, spec: FieldSpec) -> DescriptorField:
    default: Any = spec.default
    if default is not None and spec.type == "float":
        default = float(default)
    lines = tuple(textwrap.wrap(f"{name}: {spec.doc}", 100, subsequent_indent="    "))
    return DescriptorField(name, _ANNOTATION[spec.type], spec.type, lines, "" if default is None else repr(default))


def _methods(arguments: tuple[Tensor, ...], spec: OpSpec) -> Iterable[Method]:
    lines = [""]
    for t in arguments:
        given = f"; given exactly when {t.optional}" if t.optional else ""
        dims = ", ".join(spec.arguments[t.name].dims)
        text = f"{t.name} ({t.role}): {t.doc}; [{dims}] of {' or '.join(t.dtypes)}, {t.layout} strides{given}"
        lines += textwrap.wrap(text, 98, subsequent_indent="    ")
    lines += ["workspace: any array of at least `workspace_bytes` bytes, on the device of the others"]
    lines += ["stream: a raw handle or a stream object; by default the current one of the arrays' library"]
    raises = "Raises InvalidProblem, Unsupported, BufferTooSmall, MisalignedOperand or WorkspaceTooSmall."
    does = "Check the arguments and start the kernels; nothing is allocated."
    yield Method("run", "None", does, (*lines, "", raises))
    yield Method("run_unchecked", "None", "As `run`, for arguments that `run` or `can_implement` accepts.", ())
    yield Method("bind", "rt.BoundLaunch", "Check once, and return a call that only starts the kernels.", ())
    would = "Whether `run` would work, and if not, the error it would raise."
    yield Method("can_implement", "rt.Verdict", would, ())


def _entries(spec: OpSpec, arguments: tuple[Tensor, ...], column_sums: int) -> Iterable[Entry]:
    held = [t for t in arguments if t.role != "out" and t.over in ("element", "col")]
    for tag in spec.dtypes:
        element = ElementKind(tag).row
        for tile in tiles(element.bytes, element.acc.row.bytes, len(held), column_sums):
            yield Entry(f"{spec.op}_{tag}_{tile.tag}", tag, element.cuda, tile)
