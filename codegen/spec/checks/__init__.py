"""What one key of a spec means for another: each rule yields the place and the message of what breaks it."""

from __future__ import annotations

from itertools import islice

from ..family import family_of
from ..spec import OpSpec
from . import budgets, everywhere, problems, program, unread
from .finding import Finding, Rule

_MOST = 100  # findings of a rule: nobody reads more, and each takes time to word
# The rules that families have in common, in the order that they are asked.
FIRST: tuple[Rule, ...] = (everywhere.names, everywhere.texts, everywhere.fields, budgets.requirements)
PROGRAM: tuple[Rule, ...] = (program.program, program.oracle)
READ: tuple[Rule, ...] = (unread.inputs, unread.fields)
LAST: tuple[Rule, ...] = (problems.gradient, everywhere.promises, everywhere.arch, problems.draws, everywhere.bench)


def findings(spec: OpSpec) -> list[Finding]:
    """Everything in which the spec contradicts itself; an empty list means it can be lowered.

    The first rule that finds something is the last one asked: later ones rely on earlier ones.
    """
    errors: list[Finding] = []
    for rule in family_of(spec).rules:
        errors += islice(rule(spec), _MOST)
        if errors:
            return errors
    return errors
