"""BodySpec -> BodyOp: expressions are checked, SKUs become entry points."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

from baracuda.runtime import BodyKernel, Box, Schedule

from ...conditions.parse import on_one_line, read_condition
from ...lower.op import Pinned, Tensor
from ...lower.shared import first_arch, lower_tensor, scalar, shared_fields
from ...spec.beside import header_beside
from ...spec.names import SCHEDULE_NAMES
from ...spec.types import Arch
from ...text import Name, Text, names
from .op import BodyOp, Header, Maps, Row, Scratch, Setting
from .spec import BodySpec, KernelSpec


def names_of(spec: BodySpec) -> frozenset[str]:
    """The names that formulas may use: fields, numbers of schedules, settings and terms."""
    numbers = frozenset(name for row in spec.schedules for name in row.numbers)
    return numbers.union(spec.descriptor, SCHEDULE_NAMES, spec.settings, spec.terms)


def lower_body(spec: BodySpec, spec_path: str) -> BodyOp:
    """The decisions for `spec`, which has been checked."""
    known = names_of(spec)

    def formula(text: str | int) -> str:
        read_condition(str(text), known)
        return on_one_line(str(text))

    tensors = tuple(_tensor(n, spec) for n in spec.arguments)
    described = {n: " or ".join((t.shape, *t.shapes)) for n, t in spec.arguments.items()}
    rows = tuple(_rows(spec, formula))
    shared = shared_fields(spec, spec_path, tensors, described)
    flags = {t.optional for t in tensors}
    first = first_arch(spec)
    architectures = tuple(arch for arch in spec.body if arch != first)
    return BodyOp(
        **shared,
        headers=tuple(_header(spec, spec_path, arch) for arch in (*architectures, first)),
        bodies=architectures,
        scalars=tuple(scalar(n, f) for n, f in spec.descriptor.items() if f.type != "shape" and n not in flags),
        settings=tuple(_setting(n, text, spec) for n, text in spec.settings.items()),
        terms=tuple((Name(n), formula(text)) for n, text in spec.terms.items()),
        layouts=(*(_layout(n, axes) for n, axes in spec.layouts.items()), (Name("strided"), ())),
        workspace=tuple(Scratch(Name(n), w.dtype, formula(w.size)) for n, w in spec.workspace.items()),
        kernels=tuple(_kernel(k, formula) for k in spec.kernels),
        rows=rows,
        shapes=tuple((Name(n), tuple(map(formula, (t.shape, *t.shapes)))) for n, t in spec.arguments.items()),
        maps=tuple(
            Maps(Name(arch), tuple(Box(Name(n), formula(box)) for n, box in boxes.items()))
            for arch, boxes in spec.tensor_maps.items()
        ),
        pinned=tuple(Pinned(Name(plan), Name(p.arch), Text(p.doc)) for plan, p in spec.pinned.items()),
    )


def _header(spec: BodySpec, spec_path: str, arch: Arch) -> Header:
    path, shown = spec.body[arch], spec_path.removesuffix(PurePosixPath(spec_path).name)
    return Header(
        None if arch == first_arch(spec) else Name(arch), path, tuple(header_beside(spec.folder, path, shown))
    )


def _tensor(name: str, spec: BodySpec) -> Tensor:
    tensor = spec.arguments[name]
    rank = len(read_shape(tensor.shape))
    lowered = lower_tensor(name, tensor, spec, over="array")
    return lowered.ranked(rank)


def _layout(name: str, axes: Mapping[str, int]) -> tuple[Name, tuple[tuple[Name, int], ...]]:
    return Name(name), tuple((Name(tensor), axis) for tensor, axis in axes.items())


def read_shape(text: str) -> tuple[str, ...]:
    """The axes of a shape written as a tuple."""
    tree = ast.parse(text.strip(), mode="eval").body
    return tuple(ast.unparse(part) for part in tree.elts) if isinstance(tree, ast.Tuple) else ()


def _setting(name: str, text: str, spec: BodySpec) -> Setting:
    field = spec.descriptor.get(text.strip())
    boolean = (field is not None and field.type == "bool") or _is_boolean(text)
    return Setting(Name(name), boolean, read_condition(text, spec.descriptor))


def _is_boolean(text: str) -> bool:
    return isinstance(ast.parse(text.strip(), mode="eval").body, ast.Compare | ast.BoolOp)


def _kernel(spec: KernelSpec, formula: Callable[[str | int], str]) -> BodyKernel:
    threads = "threads" if spec.threads is None else formula(spec.threads)
    when = "" if spec.when is None else formula(spec.when)
    grid = tuple(map(formula, spec.grid))
    return BodyKernel(spec.name, grid, formula(spec.shared), threads, when, spec.overlaps)


def _rows(spec: BodySpec, formula: Callable[[str | int], str]) -> Iterable[Row]:
    for row in spec.schedules:
        schedule = Schedule(row.threads, tuple(row.numbers.items()))
        fits = formula(row.fits) if row.fits else ""
        yield Row(Name(row.arch), names(row.dtypes), schedule, row.layout or "", row.math, row.first, fits)
