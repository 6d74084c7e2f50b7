"""What a program cannot promise of the bits of its outputs, and the strongest that it can."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from baracuda.runtime.plans.sku import RUNGS

from ..program import Expr, Line, ProgramError, parse
from ..program.ops import OPS
from ..program.tree import Call, Query, Read, children, reads
from .map_program import split
from .scope import Programmed, scope_of
from .spec import BodySpec, MapSpec, OpSpec, RowSpec

Denied = tuple[str, str, str]  # an output, what it cannot promise, and why not, with the remedy


def promises_of(spec: OpSpec, most: Collection[str] = RUNGS) -> dict[str, tuple[str, ...]]:
    """What each output promises: what the spec says, or else as many of `most` as it can keep."""
    if isinstance(spec, RowSpec | MapSpec):
        try:
            cannot = {(n, rung) for of in spec.by_kind.values() for n, rung, _ in (*denied(of), *_unlikely(of))}
        except ProgramError:  # reported where the program is
            cannot = {(name, rung) for name in spec.outputs for rung in RUNGS}
    else:
        cannot = {(name, rung) for name, rung, _ in _of_kernels(spec)}
    kept = {n: tuple(r for r in RUNGS if r in most and (n, r) not in cannot) for n in spec.outputs}
    return {**kept, **spec.reproducibility}


def denied(spec: Programmed) -> Iterator[Denied]:
    """What no kernel of the program could keep; raises ProgramError for what cannot be scheduled."""
    if spec.precision.contraction or spec.precision.subnormals == "flush":
        text = "contraction and flushed subnormals differ between machines; drop bit_stable_across_arch"
        yield from ((name, "bit_stable_across_arch", text) for name in spec.outputs)
    lines = {line.name: line for line in (split(spec).lines if isinstance(spec, MapSpec) else _lines(spec))}
    for name in spec.outputs:
        called = {e.op for e in _behind(name, lines) if isinstance(e, Call) and OPS[e.op].rounding > 1}
        if called:
            text = f"{', '.join(sorted(called))} differ between machines; drop bit_stable_across_arch"
            yield name, "bit_stable_across_arch", text
    yield from _of_rows(spec) if isinstance(spec, RowSpec) else _of_sums(spec)


def _lines(spec: Programmed) -> tuple[Line, ...]:
    return parse(spec.program, scope_of(spec))


def _behind(name: str, lines: dict[str, Line]) -> Iterator[Expr]:
    """Every part of the expressions that `name` is computed with."""
    pending, seen = [name], set()
    while pending:
        if (line := lines.get(pending.pop())) is None or line.name in seen:
            continue
        seen.add(line.name)
        pending += reads(line.expr)
        yield from _computed(line.expr)


def _computed(expr: Expr) -> Iterator[Expr]:
    """What is computed of an expression; the places along dims whose own index they are, are not."""
    yield expr
    places = zip(expr.dims, expr.places, strict=True) if isinstance(expr, Read) else ()
    own = [place for dim, place in places if place == Query("index", dim)]
    for child in children(expr):
        if not any(child is place for place in own):
            yield from _computed(child)


def _of_rows(spec: RowSpec) -> Iterator[Denied]:
    rows = {name for name, dim in spec.dims.items() if dim.axes == "rest"}
    for name, output in spec.outputs.items():
        if not rows & set(output.dims):
            text = f"{name!r} has no {min(rows)}: it depends on how many there are; drop batch_invariant"
            yield name, "batch_invariant", text


def _of_sums(spec: MapSpec) -> Iterator[Denied]:
    for name in sorted(split(spec).late & set(spec.outputs)):
        yield name, "batch_invariant", f"{name!r} is a sum, which depends on how much is summed; drop batch_invariant"


def _unlikely(spec: Programmed) -> Iterator[Denied]:
    """What a program that reads how large the batch is, or an element's place in it, is not expected to keep."""
    lines = {line.name: line for line in _lines(spec)}
    batch = next((n for n, d in spec.dims.items() if isinstance(spec, MapSpec) or getattr(d, "axes", "") == "rest"), "")
    for name, output in spec.outputs.items():
        products = isinstance(spec, MapSpec) and any("*" in entry for entry in output.dims)
        queries = {Query("size", batch), Query("index", batch)}
        parts = [*_behind(name, lines)]
        elsewhere = any(isinstance(part, Read) and batch in part.computed for part in parts)
        if products or elsewhere or queries.intersection(parts):
            yield name, "batch_invariant", f"{batch} is read"


def _of_kernels(spec: OpSpec) -> Iterator[Denied]:
    """Of kernels written by hand, only tests can tell; what begins with the batch is expected not to depend on it."""
    for name, output in spec.outputs.items():
        yield name, "bit_stable_across_arch", "what kernels call may differ between machines"
        first = getattr(output, "shape", "").strip("() ").split(",")[0].strip()
        if not isinstance(spec, BodySpec) or spec.tests.batch is None or first != spec.tests.batch:
            yield name, "batch_invariant", "there is no batch to speak of"


def batch_of(spec: Programmed) -> str | None:
    """The field whose half gives the same bits where an output promises so: the extent of the first dim."""
    if isinstance(spec, RowSpec) or not any("batch_invariant" in rungs for rungs in spec.reproducibility.values()):
        return spec.tests.batch
    first = next((dim.of for dim in spec.dims.values()), "")
    return spec.tests.batch or (first if first in spec.descriptor else None)
