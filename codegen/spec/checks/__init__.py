"""What one key of a spec means for another: each rule yields the place and the message of what breaks it."""

from __future__ import annotations

from itertools import islice

from ..family import family_of
from ..spec import OpSpec
from .finding import Finding

_MOST = 100  # findings of a rule: nobody reads more, and each takes time to word


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
