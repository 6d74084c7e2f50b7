"""What one key of a spec means for another: each rule yields the place and the message of what breaks it."""

from __future__ import annotations

from itertools import islice

from ..spec import OpSpec
from . import body, budgets, everywhere, kinds, problems, row, unread
from . import list as list_
from . import map as map_
from . import program as program_
from .finding import Finding, Rule

_MOST = 100  # findings of a rule: nobody reads more, and each takes time to word
# The first rule that finds something is the last one asked: later ones rely on earlier ones.
_FIRST: tuple[Rule, ...] = (everywhere.names, everywhere.texts, everywhere.fields, budgets.requirements)
_LAST: tuple[Rule, ...] = (problems.gradient, everywhere.promises, everywhere.arch, problems.draws, everywhere.bench)
_PROGRAM: tuple[Rule, ...] = (program_.program, program_.oracle)
_READ: tuple[Rule, ...] = (unread.inputs, unread.fields)
RULES: dict[str, tuple[Rule, ...]] = {
    "row": (
        *(*_FIRST, row.dims, everywhere.conditions, row.tensors),
        *(*_PROGRAM, *_READ, *_LAST, row.contradictions, row.arch, everywhere.cases),
    ),
    "map": (
        *(*_FIRST, map_.dims, everywhere.conditions, map_.own_memory, map_.tensors, kinds.table),
        *(*(kinds.each(rule) for rule in _PROGRAM), *_READ, *_LAST),
        *(kinds.each(map_.contradictions), map_.outside, kinds.sorts, everywhere.cases),
    ),
    "list": (
        *(*_FIRST, map_.dims, *list_.DIMS, everywhere.conditions, map_.tensors, *list_.TENSORS, kinds.table),
        *(*_PROGRAM, *_READ, *list_.PROGRAM, *_LAST, map_.contradictions, map_.outside, everywhere.cases),
    ),
    "body": (*_FIRST, everywhere.conditions, everywhere.tensors, *body.RULES, *_LAST, everywhere.cases),
}


def findings(spec: OpSpec) -> list[Finding]:
    """Everything in which the spec contradicts itself; an empty list means it can be lowered."""
    errors: list[Finding] = []
    for rule in RULES[spec.family]:
        errors += islice(rule(spec), _MOST)
        if errors:
            return errors
    return errors
