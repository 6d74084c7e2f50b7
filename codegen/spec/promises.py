"""What a program cannot promise of the bits of its outputs, and the strongest that it can."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from baracuda.runtime.plans.sku import RUNGS

from ..program import Expr, Line
from ..program.ops import OPS
from ..program.tree import Call, Query, Read, children, reads
from .family import Denied, family_of
from .spec import OpSpec, ProgramSpec

__all__ = ["BATCH", "MACHINES", "RUNGS", "behind", "denied", "promises_of"]
BATCH, MACHINES = "batch_invariant", "bit_stable_across_arch"


def promises_of(spec: OpSpec, most: Collection[str] = RUNGS) -> dict[str, tuple[str, ...]]:
    """What each output promises: what the spec says, or else as many of `most` as it can keep."""
    cannot = family_of(spec).cannot_promise(spec)
    kept = {n: tuple(r for r in RUNGS if r in most and (n, r) not in cannot) for n in spec.outputs}
    return {**kept, **spec.reproducibility}


def denied(spec: ProgramSpec, scheduled: Iterable[Line]) -> Iterator[Denied]:
    """What machines compute differently in the lines that kernels are made of."""
    if spec.precision.contraction or spec.precision.subnormals == "flush":
        text = f"contraction and flushed subnormals differ between machines; drop {MACHINES}"
        yield from ((name, MACHINES, text) for name in spec.outputs)
    lines = {line.name: line for line in scheduled}
    for name in spec.outputs:
        called = {e.op for e in behind(name, lines) if isinstance(e, Call) and OPS[e.op].rounding > 1}
        if called:
            yield name, MACHINES, f"{', '.join(sorted(called))} differ between machines; drop {MACHINES}"


def behind(name: str, lines: dict[str, Line]) -> Iterator[Expr]:
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
