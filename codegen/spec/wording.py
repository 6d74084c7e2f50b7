"""Our wording for each of pydantic's error types: lower case, the value seen, the fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .language import REMOVED

if TYPE_CHECKING:
    from .yaml_source import Loc

# The value has the wrong shape. A branch of a union that says so was not meant by the author.
SHAPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
}
# The shape is right and the value is not; braces name entries of the error's context.
_LIMITS = {
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "less_than": "a number < {lt}",
    "less_than_equal": "a number <= {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_short": "a length >= {min_length}",
    "string_too_long": "a length <= {max_length}",
    "too_short": "a length >= {min_length}",
    "too_long": "a length <= {max_length}",
}


@dataclass(frozen=True)
class Problem:
    """One error, with its place in the file separated from the union branches it names."""

    kind: str  # pydantic's error type
    path: Loc  # in the file
    on_key: bool  # the key itself is wrong, not its value
    branches: tuple[tuple[Loc, str], ...]  # unions passed on the way: where, and which branch complains
    value: Any
    message: str  # pydantic's own
    context: Mapping[str, Any]
    keys: tuple[str, ...] = ()  # what the mapping around an unknown key does know

    @property
    def subject(self) -> str:
        if self.on_key:
            return f"key {self.path[-1]!r}"
        return repr(_dotted(self.path)) if self.path else "the file"


def wording(problem: Problem) -> str:
    """What is wrong and the fix; several lines if one of our validators gave several."""
    return _WORDING.get(problem.kind, _fallback)(problem)


_LISTED = 30  # names in a message; kernels have hundreds
_COMPARED = 100  # characters of a misspelt name


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The fix for a misspelt `name`: the nearest of the `names`, whatever the case, or the first of them."""
    name, names = name[:_COMPARED], sorted(names)
    plain = {_plain(k): k for k in names}
    near = [plain[k] for k in get_close_matches(_plain(name), plain, n=1)] or get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"needs one of {', '.join(map(repr, names[:_LISTED]))}{more}" if names else "remove it"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _dotted(path: Loc) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _described(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list() | tuple():
            return f"a list of length {len(value)}"
        case str() if len(value) > 60:
            return repr(f"{value[:57]}...")
        case _:
            return repr(value)


def _needs(problem: Problem, expected: str) -> str:
    quotes = " in quotes" if expected == "a string" and isinstance(problem.value, int | float) else ""
    clause = "" if problem.on_key else f" is {_described(problem.value)}"
    return f"{problem.subject}{clause}; needs {expected}{quotes}"


def _choice(problem: Problem) -> str:
    expected = str(problem.context["expected"])
    names = re.findall(r"'([^']*)'", expected)
    if problem.on_key and names:
        return f"unknown key {problem.path[-1]!r}; needs one of {', '.join(map(repr, names))}"
    if isinstance(problem.value, str) and names:
        return f"{problem.subject} is {_described(problem.value)}; {did_you_mean(problem.value, names)}"
    return _needs(problem, expected if len(names) < 2 else f"one of {', '.join(map(repr, names))}")


def _unknown_key(problem: Problem) -> str:
    *parents, key = problem.path
    if not parents and key in REMOVED:
        return f"{key!r} is of language {REMOVED[key]}; run 'baracuda-gen migrate --from {REMOVED[key]}'"
    inside = f" in {_dotted(tuple(parents))!r}" if parents else ""
    return f"unknown key {key!r}{inside}; {did_you_mean(str(key), problem.keys)}"


def _tag(problem: Problem) -> str:
    """A discriminated union: the value of its discriminator."""
    subject = repr(_dotted((*problem.path, str(problem.context["discriminator"]).strip("'"))))
    if "tag" not in problem.context:
        return f"{subject} is missing; add it"
    tags = re.findall(r"'([^']*)'", str(problem.context["expected_tags"]))
    return f"{subject} is {_described(problem.context['tag'])}; {did_you_mean(str(problem.context['tag']), tags)}"


def _fallback(problem: Problem) -> str:
    text = problem.message[:1].lower() + problem.message[1:]
    return f"{problem.subject} is {_described(problem.value)}; {text.replace('input should', 'it should')}"


def _limit(problem: Problem) -> str:
    return _needs(problem, _LIMITS[problem.kind].format(**problem.context))


_WORDING: dict[str, Callable[[Problem], str]] = {
    **dict.fromkeys(SHAPES, lambda p: _needs(p, SHAPES[p.kind])),
    **dict.fromkeys(_LIMITS, _limit),
    "union": lambda p: _needs(p, p.context["needs"]),
    "missing": lambda p: f"{p.subject} is missing; add it",
    "extra_forbidden": _unknown_key,
    "literal_error": _choice,
    "enum": _choice,
    "union_tag_invalid": _tag,
    "union_tag_not_found": _tag,
    "value_error": lambda p: str(p.context["error"]),
    "assertion_error": lambda p: str(p.context["error"]),
}
