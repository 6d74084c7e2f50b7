"""Rules of a table of kinds: each kind is an op with a program of its own, on the arrays that all share."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...spec.checks.finding import Finding, Rule, meant
from ...spec.defaults import OF_KIND
from ...spec.names import KEYWORDS
from ...spec.scope import kinds_of
from ...spec.types import Place
from .program import split
from .spec import KindSpec, MapSpec

_OF_A_KIND = frozenset(KindSpec.model_fields)


def table(spec: MapSpec) -> Iterator[Finding]:
    if not spec.kinds and not spec.program:
        yield ("op",), 0, "'program' is missing; add it, or a table of `kinds`"
    if spec.kinds and spec.reference:
        text = "a reference of all kinds goes with a `program` that they share; add it, or leave it out"
        yield ("reference",), 0, text
    if any(re.match(rf"{OF_KIND} = ", of.program) and of.program.count(OF_KIND) == 1 for of in spec.by_kind.values()):
        yield ("kinds",), 0, f"the program does not read `{OF_KIND}`, the value of the kind that is chosen"
    for name, field in spec.descriptor.items():
        if (field.type == "kind") != (name == "kind"):
            text = f"{name!r} is a {field.type}; `kind` is the field of a table of kinds, no other"
            yield ("descriptor", name), 0, text
        elif name == "kind" and not spec.kinds:
            yield ("descriptor", name), 0, "there is no table of `kinds` to choose from; add it"
    for name, kind in spec.kinds.items():
        if name in KEYWORDS:
            yield ("kinds", name), 0, f"{name!r} is a reserved word; choose another name"
        for key, values, known in (("ranges", kind.ranges, spec.inputs), ("defaults", kind.defaults, spec.descriptor)):
            for unknown in values.keys() - known.keys():
                text = f"unknown {'input' if key == 'ranges' else 'field'} {unknown!r}; {meant(unknown, known)}"
                yield ("kinds", name, key, unknown), 0, text


def each(rule: Rule) -> Rule:
    """`rule` for the program of every kind."""

    def rule_of_each(spec: MapSpec) -> Iterator[Finding]:
        for name, of in spec.by_kind.items():
            for place, below, text in rule(of):
                yield (_within(name, place) if name else place), below, text

    return rule_of_each


def _within(kind: str, place: Place) -> Place:
    """Where the table says what is at this place of the kind's own spec."""
    return ("kinds", kind, *place) if place[0] in _OF_A_KIND else place


def sorts(spec: MapSpec) -> Iterator[Finding]:
    """A name has one sort of value in all kinds."""
    known: dict[str, str] = {}
    for name, of in spec.by_kind.items() if spec.kinds else ():
        lines = split(of).lines
        found = kinds_of(of, lines)
        for line in lines:
            sort = found[line.name]
            if known.setdefault(line.name, sort) != sort:
                text = f"{line.name!r} is a {sort}, and a {known[line.name]} in another kind; choose another name"
                yield ("kinds", name, "program"), line.number, text
