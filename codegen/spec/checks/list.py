"""Rules of the list family: one dim that counts elements, and a program that sees one element at a time."""

from __future__ import annotations

from collections.abc import Iterator

from baracuda.runtime.families.list.plan import MOST_LISTS

from ...program import parse
from ...program.tree import Query, Reduce, walk
from ..scope import scope_of
from ..spec import ListSpec
from .finding import Finding, Rule


def dims(spec: ListSpec) -> Iterator[Finding]:
    if len(spec.dims) != 1:
        yield ("dims",), 0, f"names {len(spec.dims)} dims; the arrays of lists have one, the elements of each list"
    for name, dim in spec.dims.items():
        if spec.descriptor[dim.of].type != "int":
            text = f"{dim.of!r} must be an int, the number of elements of each list; arrays may have any shapes"
            yield ("dims", name, "of"), 0, text


def tensors(spec: ListSpec) -> Iterator[Finding]:
    for name, output in spec.outputs.items():
        if not output.dims:
            yield ("outputs", name, "dims"), 0, f"{name!r} must be a list; give it the dim {next(iter(spec.dims))!r}"
    lists = [t for t in spec.arguments.values() if t.dims]
    if len(lists) > MOST_LISTS:
        yield ("inputs",), 0, f"{len(lists)} lists; there is room for {MOST_LISTS}"
    if spec.kinds:
        yield ("kinds",), 0, "an op on lists has one program; a table of kinds is of a map"


def program(spec: ListSpec) -> Iterator[Finding]:
    for line in parse(spec.program, scope_of(spec)):
        for part in walk(line.expr):
            if isinstance(part, Reduce) or (isinstance(part, Query) and part.what != "present"):
                what = part.kind if isinstance(part, Reduce) else part.what
                text = f"{what} is over many elements; the program of a list sees one element at a time"
                yield ("program",), line.number, text


DIMS: tuple[Rule, ...] = (dims,)
TENSORS: tuple[Rule, ...] = (tensors,)
PROGRAM: tuple[Rule, ...] = (program,)
