"""What rules are made of: findings, and how they word a name or a value that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from ..conditions import ConditionError, read_condition
from ..spec import OpSpec

Place = tuple[str | int, ...]
Finding = tuple[Place, int, str]  # place, lines below it, message
Rule = Callable[[Any], Iterator[Finding]]


def near(name: str, names: object) -> str:
    candidates = [str(n) for n in names]  # type: ignore[attr-defined]
    near = get_close_matches(name, candidates, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(candidates) or 'none'}"


def condition(spec: OpSpec, text: str, place: Place) -> Iterator[Finding]:
    try:
        read_condition(text, tuple(spec.descriptor))
    except ConditionError as error:
        yield place, 0, str(error)


def fits(kind: str, value: object) -> bool:
    match kind:
        case "shape":
            return isinstance(value, list) and all(type(n) is int for n in value)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -(2**63) <= value < 2**63
    return type(value) in (int, float)
