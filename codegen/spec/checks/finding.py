"""What rules are made of: findings, and how they word a name or a value that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from baracuda.runtime.values import MAX_RANK, near

from ...conditions.kinds import OF_FIELD, Kind, kind_of
from ...conditions.parse import ConditionError
from ..spec import OpSpec
from ..types import Place

Finding = tuple[Place, int, str]  # place, lines below it, message
Rule = Callable[[Any], Iterator[Finding]]

_LISTED, _COMPARED = 30, 100  # names in a message, characters of one that is looked for


def meant(name: str, names: object) -> str:
    """The name that may be meant, or all that there are."""
    candidates = [str(n) for n in names]  # type: ignore[attr-defined]
    if like := near(name[:_COMPARED], candidates):
        return f"did you mean {like!r}?"
    more = f" and {len(candidates) - _LISTED} more" if len(candidates) > _LISTED else ""
    return f"known are {', '.join(candidates[:_LISTED]) or 'none'}{more}"


def fields_of(spec: OpSpec) -> dict[str, Kind]:
    """The kinds of the descriptor's fields, as conditions see them."""
    return {name: OF_FIELD[field.type] for name, field in spec.descriptor.items() if field.type in OF_FIELD}


def expression(text: str | int, names: Mapping[str, Kind], place: Place, *needs: str) -> Iterator[Finding]:
    """What is wrong with an expression over `names` whose value has to be of one of these kinds."""
    try:
        kind = kind_of(str(text), names)
    except ConditionError as error:
        yield place, 0, str(error)
    else:
        if kind.name not in needs:
            expected = " or ".join(needs)
            yield place, 0, f"must be of kind {expected}, got {str(text).strip()[:60]!r} of kind {kind.name}"


def fits(kind: str, value: object) -> bool:
    """Whether a descriptor's field of that kind can hold `value`."""
    match kind:
        case "shape":
            return isinstance(value, list) and len(value) <= MAX_RANK and all(fits("int", n) for n in value)
        case "bool":
            return isinstance(value, bool)
        case "kind":
            return isinstance(value, str)
        case "int":
            return type(value) is int and -(2**63) <= value < 2**63
    return type(value) in (int, float)
