"""`repro.json`, validated: types and limits, because its author may be untrusted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from baracuda.runtime import InvalidProblem
from baracuda.runtime.values import one_line

from ..trials.memory import PATTERNS

FORMAT = 1
PARTS = ("inputs", "exact", "allowed")

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,200}$")]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Fact = Annotated[str, StringConstraints(max_length=200)]
Strings = Annotated[dict[Fact, Fact], Field(max_length=16)]
Int = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Value = bool | Int | float | Annotated[list[Int], Field(max_length=64)] | None
Numbers = Annotated[dict[Name, Word], Field(max_length=200)]


class Facts(BaseModel):
    """A trial without its data, what was seen, and where."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: Literal[1]
    op: Name
    descriptor: Text
    case: Annotated[dict[Name, Value], Field(max_length=200)]
    element: Word
    arch: Word | None
    layout: Name | None
    archs: Annotated[list[Word], Field(max_length=64)] | None
    tuned: bool
    math_precision: Word | None = None
    waives: Annotated[list[Name], Field(max_length=64)] = []
    choice: Numbers
    patterns: Annotated[dict[Name, Literal[tuple(PATTERNS)]], Field(max_length=200)]  # type: ignore[valid-type]
    broadcast: Annotated[dict[Name, Annotated[int, Field(ge=0, lt=64)]], Field(max_length=200)]
    shift_workspace: Annotated[int, Field(ge=0, le=1 << 20, multiple_of=16)]
    repeats: Annotated[int, Field(ge=1, le=10_000)]
    device: Annotated[str, StringConstraints(pattern=r"^(host|check|cuda(:[0-9]{1,3})?)$")]
    saw: Text
    origin: dict[str, Any]
    package: Text
    of: Strings
    versions: Strings
    numbers: dict[Literal[PARTS], Numbers]  # type: ignore[valid-type]


def facts_of(data: object) -> dict[str, Any]:
    """The validated facts; InvalidProblem with the first error."""
    if isinstance(data, dict) and data.get("format") != FORMAT:
        raise InvalidProblem(f"is of format {one_line(data.get('format'), 40)}, needed is {FORMAT}")
    try:
        return Facts.model_validate(data).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "repro.json"
        raise InvalidProblem(f"is no bundle, or a damaged one ({one_line(place, 100)}: {first['msg'][:200]})") from None
