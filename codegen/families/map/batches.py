"""Sums that have one order of additions in a batch of any size at the price of some speed: where a spec asks for it."""

from __future__ import annotations

from collections.abc import Iterable

from ...program import Expr, Line, Reduce
from ...program.tree import reads
from ...spec.family import family_of
from ...spec.promises import BATCH
from .by_index import lists_of
from .passes import Pass
from .spec import MapSpec


def batch_dims(spec: MapSpec, batch: str | None) -> frozenset[str]:
    """The dims whose extents are those of the field that counts what is independent."""
    return frozenset(name for name, dim in spec.dims.items() if dim.of == batch)


def reductions_behind(name: str, lines: dict[str, Expr]) -> dict[str, Reduce]:
    """The reductions that a line rests on, by their lines."""
    behind, pending = set[str](), [name]
    while pending:
        if (line := pending.pop()) in lines and line not in behind:
            behind.add(line)
            pending += reads(lines[line])
    return {n: expr for n in behind if isinstance(expr := lines[n], Reduce)}


def of_whole_batches(lines: Iterable[Line], passes: Iterable[Pass], batch: frozenset[str]) -> frozenset[str]:
    """The reductions over the batch, and by an index, whose terms may be of any part of it; all where there is none."""
    by_index = {name for of in passes if lists_of(of.spec, of.parts) is not None for name in of.parts.sums}
    reductions = {line.name: line.expr for line in lines if isinstance(line.expr, Reduce)}
    over = {name for name, expr in reductions.items() if not batch or not batch.isdisjoint(expr.dims)}
    return frozenset(by_index | over)


def invariant(spec: MapSpec) -> tuple[str, ...]:
    """The batch's dims, if the spec promises that they make no difference where that has a price."""
    priced = {name for of in spec.by_kind.values() for name, *_ in family_of(spec).has_a_price(of)}
    asked = any(BATCH in spec.reproducibility.get(name, ()) for name in priced)
    return tuple(sorted(batch_dims(spec, spec.tests.batch))) if asked else ()
