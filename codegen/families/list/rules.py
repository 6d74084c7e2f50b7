"""Rules of the list family: one dim that counts elements, of which a program knows neither place nor array."""

from __future__ import annotations

from collections.abc import Iterator

from baracuda.runtime.families.list.plan import MOST_LISTS

from ...program import parse
from ...program.tree import Query, Reduce, walk
from ...spec.checks.finding import Finding
from ...spec.scope import scope_of
from ..map import passes as map_passes
from .spec import ListSpec


def dims(spec: ListSpec) -> Iterator[Finding]:
    if len(spec.dims) != 1:
        yield ("dims",), 0, f"names {len(spec.dims)} dims; the arrays of lists have one, the elements of each list"
    for name, dim in spec.dims.items():
        field = spec.descriptor.get(dim.of)
        if field is None or field.type != "int":
            text = f"{dim.of!r} must be an int, the number of elements of each list; arrays may have any shapes"
            yield ("dims", name, "of"), 0, text


def tensors(spec: ListSpec) -> Iterator[Finding]:
    lists = [t for t in spec.arguments.values() if t.dims]
    if len(lists) > MOST_LISTS:
        yield ("inputs",), 0, f"{len(lists)} lists; there is room for {MOST_LISTS}"
    if spec.kinds:
        yield ("kinds",), 0, "an op on lists has one program; a table of kinds is of a map"


def program(spec: ListSpec) -> Iterator[Finding]:
    for line in parse(spec.program, scope_of(spec)):
        for part in walk(line.expr):
            what = part.kind if isinstance(part, Reduce) else part.what if isinstance(part, Query) else ""
            if what in ("index", "argmax", "argmin"):
                text = f"{what} is of an element's place; those of a list have none, for its arrays may be cut anyhow"
                yield ("program",), line.number, text


def passes(spec: ListSpec) -> Iterator[Finding]:
    """A walk over elements computes every output."""
    for of in map_passes.passes(spec):
        if not of.parts.cells:
            name, dim = next(iter(of.spec.outputs)), next(iter(spec.dims))
            text = f"{name!r} rests on no reduction over {dim}; give it that dim, or compute it elsewhere"
            yield ("outputs", name, "dims"), 0, text
