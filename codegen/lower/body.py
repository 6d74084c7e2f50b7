"""BodySpec -> BodyOp: expressions become Python, SKUs become entry points."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from baracuda.runtime import Schedule
from baracuda.runtime.arrays.element import ElementKind

from ..conditions.parse import evaluate_condition, fields_of, read_condition, to_python
from ..spec.names import SCHEDULE_NAMES
from ..spec.spec import BodySpec, KernelSpec
from ..text import Code, Name, Text, names
from .body_op import BodyOp, Entry, Kernel, Maps, Pinned, Row, Scratch, Setting, Shapes
from .op import Tensor
from .shared import first_arch, lower_tensor, scalar, shared_fields

Printer = Callable[[str | int], Code]  # of an expression over fields, numbers and terms

_LONGEST = 1000  # characters of what a refusal says that a schedule needs
_CTYPE = {"T": "T", "acc": "acc_of<T>", "f32": "float", "i32": "int", "i64": "i64"}


def owners_of(spec: BodySpec) -> dict[str, str]:
    """Whose attribute each name of an expression is: the descriptor's, the schedule's, or the settings'."""
    numbers = {name: "s" for row in spec.schedules for name in row.numbers}
    owners = dict.fromkeys(SCHEDULE_NAMES, "s") | numbers
    return dict.fromkeys(spec.descriptor, "d") | owners | dict.fromkeys((*spec.settings, *spec.terms), "v")


def lower_body(spec: BodySpec, spec_path: str) -> BodyOp:
    """The decisions for `spec`, which has been checked."""
    owners = owners_of(spec)

    def python(text: str | int) -> Code:
        return Code(to_python(read_condition(str(text), owners), owners))

    tensors = tuple(_tensor(n, spec) for n in spec.arguments)
    described = {n: " or ".join((t.shape, *t.shapes)) for n, t in spec.arguments.items()}
    rows = tuple(_rows(spec, python))
    kernels = tuple(_kernel(k, python) for k in spec.kernels)
    shared = shared_fields(spec, spec_path, tensors, described)
    flags = {t.optional for t in tensors}
    first = first_arch(spec)
    own = tuple(arch for arch in spec.body if arch != first)
    op = BodyOp(
        **shared,
        headers=(*((Name(f"BARACUDA_{a.upper()}"), Code(spec.body[a])) for a in own), (None, Code(spec.body[first]))),
        bodies=own,
        scalars=tuple(scalar(n, f) for n, f in spec.descriptor.items() if f.type != "shape" and n not in flags),
        settings=tuple(_setting(n, text, spec, python(text)) for n, text in spec.settings.items()),
        terms=tuple((Name(n), python(text)) for n, text in spec.terms.items()),
        layouts=(*(_layout(n, axes) for n, axes in spec.layouts.items()), (Name("strided"), ())),
        workspace=tuple(
            Scratch(Name(n), Code(_CTYPE[w.dtype]), w.dtype, python(w.size)) for n, w in spec.workspace.items()
        ),
        kernels=kernels,
        rows=rows,
        entries=tuple(_entries(spec, rows)),
        shapes=tuple(
            Shapes(Name(n), tuple(python(text) for text in (t.shape, *t.shapes))) for n, t in spec.arguments.items()
        ),
        maps=tuple(
            Maps(Name(arch), tuple((Name(n), python(box)) for n, box in boxes.items()))
            for arch, boxes in spec.tensor_maps.items()
        ),
        pinned=tuple(Pinned(Name(plan), Name(p.arch), Text(p.doc)) for plan, p in spec.pinned.items()),
    )
    return replace(op, needs_math="math." in repr(op))


def _tensor(name: str, spec: BodySpec) -> Tensor:
    tensor = spec.arguments[name]
    rank = len(read_shape(tensor.shape))
    lowered = lower_tensor(name, tensor, spec, over="array", struct="Strided")
    return lowered.ranked(rank)


def _layout(name: str, axes: Mapping[str, int]) -> tuple[Name, tuple[tuple[Name, int], ...]]:
    return Name(name), tuple((Name(tensor), axis) for tensor, axis in axes.items())


def read_shape(text: str) -> tuple[str, ...]:
    """The axes of a shape written as a tuple."""
    tree = ast.parse(text.strip(), mode="eval").body
    return tuple(ast.unparse(part) for part in tree.elts) if isinstance(tree, ast.Tuple) else ()


def _setting(name: str, text: str, spec: BodySpec, python: Code) -> Setting:
    field = spec.descriptor.get(text.strip())
    boolean = (field is not None and field.type == "bool") or _is_boolean(text)
    return Setting(Name(name), Code("bool" if boolean else "int"), python)


def _is_boolean(text: str) -> bool:
    return isinstance(ast.parse(text.strip(), mode="eval").body, ast.Compare | ast.BoolOp)


def _kernel(spec: KernelSpec, python: Printer) -> Kernel:
    grid = [python(text) for text in spec.grid] + [Code("1")] * (3 - len(spec.grid))
    if spec.when is not None:
        grid[0] = _only_if(python(spec.when), grid[0])
    threads = Code("s.threads") if spec.threads is None else python(spec.threads)
    return Kernel(Name(spec.name), tuple(grid), threads, python(spec.shared), spec.overlaps)


def _only_if(condition: Code, blocks: Code) -> Code:
    test, body = (ast.parse(text, mode="eval").body for text in (condition, blocks))
    return Code(ast.unparse(ast.IfExp(test, body, ast.Constant(0))))


def _rows(spec: BodySpec, python: Printer) -> Iterable[Row]:
    for row in spec.schedules:
        schedule = Schedule(row.threads, tuple(row.numbers.items()))
        serves = python(row.fits) if row.fits else Code("")
        said = _written_out(row.fits, spec.terms) if row.fits else ""
        yield Row(Name(row.arch), names(row.dtypes), schedule, row.layout or "", row.first, said, serves)


def _written_out(text: str, terms: Mapping[str, str]) -> str:
    """The expression with terms replaced by their text, since readers of an error know no terms."""
    for name, of in reversed(list(terms.items())):  # a term is made of those before it
        longer = re.sub(rf"\b{name}\b(?!\s*\()", f"({of.strip()})", text)
        if len(longer) > _LONGEST:  # terms of terms may double it each time
            break
        text = longer
    return text


def _entries(spec: BodySpec, rows: tuple[Row, ...]) -> Iterable[Entry]:
    none = dict.fromkeys((name for row in rows for name, _ in row.schedule.numbers), 0)
    for row in rows:
        for tag in row.elements:
            arch = "" if row.arch == "sm_80" else f"{row.arch}_"
            symbol = f"{spec.op}_{arch}{tag}_{row.schedule.tag}"
            for kernel in spec.kernels:
                if not _may_launch(kernel, none | dict(row.schedule.numbers)):
                    continue
                threads = row.schedule.threads if kernel.threads is None else kernel.threads
                known = dict(row.schedule.numbers)
                bounds = known[threads] if isinstance(threads, str) else threads
                resident = known.get("blocks_per_sm", 1)
                ctype = ElementKind(tag).row.cuda
                symbols = Name(f"{symbol}_{kernel.name}"), Name(kernel.name)
                yield Entry(*symbols, Code(ctype), row, Code(f"{bounds}, {resident}"))


def _may_launch(kernel: KernelSpec, numbers: Mapping[str, int]) -> bool:
    """False if a schedule's numbers alone forbid the launch."""
    known = kernel.when is not None and set(fields_of(kernel.when)) <= set(numbers)
    return not known or bool(evaluate_condition(str(kernel.when), numbers))
