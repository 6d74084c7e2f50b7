"""Rules of the body family: expressions over the descriptor, and names that other keys refer to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from baracuda.runtime.compile.cubin import INCLUDE
from baracuda.runtime.compile.headers import header_digests

from ...conditions.kinds import WORD, Kind, kind_of
from ...conditions.parse import ConditionError, evaluate_condition
from ...conditions.parse import fields_of as fields_read
from ...program.ops import OPS
from ...spec.beside import file_beside, header_beside
from ...spec.checks.budgets import over
from ...spec.checks.finding import Finding, Rule, expression, fields_of, meant
from ...spec.names import SCHEDULE_NAMES
from ...spec.types import Place, arch_number
from . import table
from .members import members
from .oracles import definitions, definitions_in
from .spec import BodySpec, BodyTensor

# How test values of a tensor may be drawn, where any will not do; see `checking/problems/body.py`.
DRAWN = ("offsets", "mask", "slopes")
MAX_EXPRESSIONS = 16_000  # characters of what a body declares; attention has 1,777
MAX_IN_SCHEDULES = 200_000  # the same for all schedules, each of which selection asks; attention has 35,913
OF_TERMS = ("bool", "int", "float", "tuple")


def budget(spec: BodySpec) -> Iterator[Finding]:
    launched = [text for kernel in spec.kernels for text in (*kernel.grid, kernel.shared, kernel.when or "")]
    shapes = [text for tensor in spec.arguments.values() for text in (tensor.shape, *tensor.shapes)]
    sizes = [scratch.size for scratch in spec.workspace.values()]
    everything = [*spec.settings.values(), *spec.terms.values(), *sizes, *launched, *shapes]
    count, fits = sum(len(str(text)) for text in everything), sum(len(row.fits or "") for row in spec.schedules)
    subject = "shapes, settings, terms, workspaces and kernels"
    yield from over("kernels", subject, count, MAX_EXPRESSIONS)
    yield from over("schedules", f"{subject}, for all schedules", count * len(spec.schedules) + fits, MAX_IN_SCHEDULES)


def names(spec: BodySpec) -> Iterator[Finding]:
    """Names that expressions share: descriptor fields, settings and numbers of schedules differ."""
    for i, row in enumerate(spec.schedules):
        for name in row.numbers:
            if name in spec.descriptor or name in SCHEDULE_NAMES:
                yield ("schedules", i, "numbers", name), 0, f"{name!r} means something else; choose another name"


def shapes(spec: BodySpec) -> Iterator[Finding]:
    fields = fields_of(spec)
    for section in ("inputs", "outputs"):
        for name, tensor in getattr(spec, section).items():
            place = (section, name, "shape")
            yield from _tuple_errors(tensor.shape, fields, place, "no shape; write '(rows, cols)', or '(rows,)'")
            if (rank := rank_of(tensor.shape)) > table.MAX_RANK:
                yield place, 0, f"{name!r} has {rank} axes; the most is {table.MAX_RANK}"
            for i, text in enumerate(tensor.shapes):
                other_place = (section, name, "shapes", i)
                yield from _tuple_errors(text, fields, other_place, "no shape; write '(cols,)'")
                if (other_rank := rank_of(text)) > rank:
                    message = f"has {other_rank} axes, more than `shape`, which has {rank}; begin with the most"
                    yield other_place, 0, message


def _tuple_errors(
    text: str, kinds: Mapping[str, Kind], place: Place, otherwise: str, rank: int = 0
) -> Iterator[Finding]:
    """What is wrong with a tuple that is to be written out, of so many elements if that is not 0."""
    errors = list(expression(text, kinds, place, "tuple"))
    yield from errors
    if not errors and (not isinstance(body_of(text), ast.Tuple) or (rank and rank_of(text) != rank)):
        yield place, 0, f"{text!r} is {otherwise}"


def body_of(text: str) -> ast.expr | None:
    """The syntax tree of an expression; None of what is none."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(text.strip(), mode="eval").body
    return None


def rank_of(text: str) -> int:
    """How many axes a shape that is written as a tuple has."""
    tree = body_of(text)
    return len(tree.elts) if isinstance(tree, ast.Tuple) else 0


def expressions(spec: BodySpec) -> Iterator[Finding]:
    fields = fields_of(spec)
    for name, text in spec.settings.items():
        yield from expression(text, fields, ("settings", name), "bool", "int")
    kinds = fields | table.numbers(spec)
    kinds |= {name: _kind(text, fields) for name, text in spec.settings.items()}
    for name, text in spec.terms.items():
        if name in kinds:
            yield ("terms", name), 0, f"{name!r} means something else; choose another name"
        yield from expression(text, kinds, ("terms", name), *OF_TERMS)
        kinds[name] = _kind(text, kinds)
    yield from _kernels(spec, kinds)
    yield from table.sizes(spec, kinds)
    for name, scratch in spec.workspace.items():
        yield from expression(scratch.size, kinds, ("workspace", name, "size"), "int")
    for arch, maps in spec.tensor_maps.items():
        for name, box in maps.items():
            yield from _tuple_errors(box, kinds, ("tensor_maps", arch, name), "no box; write '(rows, columns)'", rank=2)
    for i, row in enumerate(spec.schedules):
        if row.fits is not None:
            yield from expression(row.fits, kinds, ("schedules", i, "fits"), "bool")


def _kernels(spec: BodySpec, kinds: Mapping[str, Kind]) -> Iterator[Finding]:
    for i, kernel in enumerate(spec.kernels):
        for axis, blocks in enumerate(kernel.grid):
            yield from expression(blocks, kinds, ("kernels", i, "grid", axis), "int")
        yield from expression(kernel.shared, kinds, ("kernels", i, "shared"), "int")
        if kernel.when is not None:
            yield from expression(kernel.when, kinds, ("kernels", i, "when"), "bool")
        if isinstance(kernel.threads, str) and kernel.threads not in _numbers(spec):
            hint = meant(kernel.threads, _numbers(spec))
            yield ("kernels", i, "threads"), 0, f"{kernel.threads!r} is no number of the schedules; {hint}"


def _numbers(spec: BodySpec) -> list[str]:
    return sorted({name for row in spec.schedules for name in row.numbers})


def _kind(text: str, kinds: Mapping[str, Kind]) -> Kind:
    """The kind of an expression, or an int of one that is complained of already."""
    try:
        return kind_of(text, kinds)
    except ConditionError:
        return WORD


def launches(spec: BodySpec) -> Iterator[Finding]:
    """What the numbers of a schedule alone decide has a value for each of them."""
    zeros = dict.fromkeys(_numbers(spec), 0)
    for i, kernel in enumerate(spec.kernels):
        if kernel.when is not None and set(fields_read(kernel.when)) <= set(zeros):
            for row in spec.schedules:
                try:
                    evaluate_condition(kernel.when, zeros | row.numbers)
                except ConditionError as error:
                    yield ("kernels", i, "when"), 0, str(error)
                    break


def references(spec: BodySpec) -> Iterator[Finding]:
    """Tensors, architectures and oracles that are named exist."""
    for layout, axes in spec.layouts.items():
        if layout == "strided":
            yield ("layouts", layout), 0, "'strided' takes anything and is always the last; leave it out"
        for name, axis in axes.items():
            if name not in spec.arguments:
                yield ("layouts", layout, name), 0, f"unknown tensor {name!r}; {meant(name, spec.arguments)}"
            else:
                yield from _axis(spec.arguments[name], axis, ("layouts", layout, name))
    for arch, maps in spec.tensor_maps.items():
        if arch not in spec.body:
            yield ("tensor_maps", arch), 0, f"{arch!r} has no body of its own; {meant(arch, spec.body)}"
        for name in maps:
            if name not in spec.arguments:
                yield ("tensor_maps", arch, name), 0, f"unknown tensor {name!r}; {meant(name, spec.arguments)}"
    for i, row in enumerate(spec.schedules):
        if row.arch not in spec.arch:
            yield ("schedules", i, "arch"), 0, f"{row.arch!r} is not under arch; {meant(row.arch, spec.arch)}"
        if row.layout is not None and row.layout not in spec.layouts:
            yield ("schedules", i, "layout"), 0, f"unknown layout {row.layout!r}; {meant(row.layout, spec.layouts)}"
        for dtype in row.dtypes:
            if dtype not in spec.dtypes:
                yield ("schedules", i, "dtypes"), 0, f"{dtype!r} is not a dtype of this op; {meant(dtype, spec.dtypes)}"
    for dtype in spec.dtypes:
        if not any(dtype in row.dtypes for row in spec.schedules):
            yield ("schedules",), 0, f"no schedule serves {dtype}; add one or drop the dtype"
    for plan, pinned in spec.pinned.items():
        if plan == spec.plan:
            yield ("pinned", plan), 0, f"{plan!r} is the op's own plan; name the plan of one architecture differently"
        if pinned.arch not in spec.arch:
            yield ("pinned", plan, "arch"), 0, f"{pinned.arch!r} is not under arch; {meant(pinned.arch, spec.arch)}"
    if min(spec.arch, key=arch_number) not in spec.body:
        yield ("body",), 0, "the least architecture needs a header: others fall back on it"
    for arch, header in spec.body.items():
        if arch not in spec.arch:
            yield ("body", arch), 0, f"{arch!r} is not under arch; {meant(arch, spec.arch)}"
        if not (header_beside(spec.folder, header) or (INCLUDE / "baracuda" / header).is_file()):
            yield ("body", arch), 0, f"no header {header!r} beside the spec, and no baracuda/{header}"
    for name, tensor in spec.inputs.items():
        if tensor.test is not None and tensor.test not in DRAWN:
            yield ("inputs", name, "test"), 0, f"unknown way to draw {tensor.test!r}; {meant(tensor.test, DRAWN)}"


def _axis(tensor: BodyTensor, axis: int, place: Place) -> Iterator[Finding]:
    """An axis is one of every shape that the tensor may have; counted from the front, all have the same rank."""
    ranks = {rank_of(text) for text in (tensor.shape, *tensor.shapes)}
    if not -min(ranks) <= axis < min(ranks):
        yield place, 0, f"{place[-1]!r} has {min(ranks)} axes, got {axis}"
    elif axis >= 0 and len(ranks) > 1:
        yield place, 0, f"{place[-1]!r} has {min(ranks)} to {max(ranks)} axes; count from the back, got {axis}"


def oracle(spec: BodySpec) -> Iterator[Finding]:
    """The definition is one of those installed; of a forward op it has values."""
    module, function = spec.oracle.split(".")
    own = file_beside(spec.folder, f"{module}.py")
    functions = definitions().get(module) if own is None else definitions_in(own)
    if functions is None:
        text = f"no {module}.py is beside the spec, and no module {module!r} of oracles is installed"
        yield ("oracle",), 0, f"{text}; {meant(module, definitions())}"
    elif function not in functions:
        yield ("oracle",), 0, f"no oracle {function!r} in module {module!r}; {meant(function, functions)}"
    elif spec.gradient is None and not functions[function]:
        yield ("oracle",), 0, f"{spec.oracle!r} bounds errors of a gradient, and has no values; add `gradient`"


_MMA = re.compile(r"\bw?g?mma_\w+")
_LIBRARY = re.compile(rf"\bmath::({'|'.join(sorted(name for name, op in OPS.items() if op.rounding > 1))})\(")


def contradictions(spec: BodySpec) -> Iterator[Finding]:
    """Bits that cannot be the same on every GPU, by what the headers of the kernels call."""
    for name, output in spec.outputs.items():
        place = ("reproducibility", name)
        if output.moved or "bit_stable_across_arch" not in spec.reproducibility.get(name, ()):
            continue
        if spec.precision.contraction or spec.precision.subnormals == "flush":
            yield place, 0, "contraction and flushed subnormals differ between machines; drop bit_stable_across_arch"
        if called := _called(spec):
            fix = "drop bit_stable_across_arch, or say `moved: true` of values that are only moved"
            yield place, 0, f"the kernels call {', '.join(called)}, which differ between machines; {fix}"


def _called(spec: BodySpec) -> list[str]:
    """The library functions and matrix instructions in the headers that the kernels' headers include."""
    own = {header: header_beside(spec.folder, header) for header in spec.body.values()}
    texts = ["\n".join(text for _, text in lines) or f"#include <baracuda/{name}>" for name, lines in own.items()]
    texts += [(INCLUDE / name).read_text(encoding="utf-8") for name, _ in header_digests("\n".join(texts), INCLUDE)]
    functions = {found for text in texts for found in _LIBRARY.findall(text)}
    return [*sorted(functions), *(["mma"] if any(map(_MMA.search, texts)) else [])]


RULES: tuple[Rule, ...] = (
    *(budget, names, members, shapes, expressions, launches, references, oracle, contradictions),
    *table.RULES,
)
