"""Every place of a spec that can hold something, from the model: a new key is found by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import Any

from ..spec import FAMILY_SPECS

KEY, EACH, ITEM = "<key>", "<each>", "<item>"  # a mapping's key, any of its values, any item of a list
Path = tuple[str, ...]
_EXAMPLES = (
    "some", "Some", "SomePlan", "SOME", "some.cuh", "some.some", "(1,)", "rows", "f32", "sm_80", "strided",
)  # fmt: skip


@cache
def schema(family: str) -> Mapping[str, Any]:
    """The JSON Schema of a family's specs."""
    return FAMILY_SPECS[family].model_json_schema()


@cache
def places(family: str) -> tuple[Path, ...]:
    """Where a spec of the family can hold a value or a key."""
    return tuple(dict.fromkeys(_below(schema(family), schema(family), (), 0)))


def _below(whole: Mapping[str, Any], part: Any, path: Path, depth: int) -> Iterator[Path]:
    if path:
        yield path
    if depth > 12 or not isinstance(part, Mapping):
        return
    for choice in _choices(whole, part):
        for name, inner in choice.get("properties", {}).items():
            yield from _below(whole, inner, (*path, name), depth + 1)
        for inner in _values(choice):
            yield (*path, KEY)
            yield from _below(whole, inner, (*path, EACH), depth + 1)
        for inner in (choice.get("items"), *choice.get("prefixItems", ())):
            if inner is not None:
                yield from _below(whole, inner, (*path, ITEM), depth + 1)


def _choices(whole: Mapping[str, Any], part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a schema may stand for: itself, what it refers to, and each of several."""
    if "$ref" in part:
        return _choices(whole, whole["$defs"][part["$ref"].rpartition("/")[2]])
    return [c for one in part["anyOf"] for c in _choices(whole, one)] if "anyOf" in part else [part]


def _values(part: Mapping[str, Any]) -> list[Any]:
    found = list(part.get("patternProperties", {}).values())
    return [*found, part["additionalProperties"]] if isinstance(part.get("additionalProperties"), dict) else found


def sample(family: str, path: Path, rng: Random) -> Any:
    """Something that the model takes at `path`."""
    whole = schema(family)
    parts: list[Any] = [whole]
    for name in path:
        parts = [inner for part in parts for choice in _choices(whole, part) for inner in _inner(choice, name)]
    return _sample(whole, rng.choice(parts), rng, 0) if parts else None


def _inner(part: Mapping[str, Any], name: str) -> list[Any]:
    if name == EACH:
        return _values(part)
    if name == ITEM:
        return [inner for inner in (part.get("items"), *part.get("prefixItems", ())) if inner is not None]
    return [part["properties"][name]] if name in part.get("properties", {}) else []


def _sample(whole: Mapping[str, Any], part: Mapping[str, Any], rng: Random, depth: int) -> Any:
    part = rng.choice(_choices(whole, part))
    if "const" in part or "enum" in part:
        return part.get("const", rng.choice(part.get("enum", [None])))
    match part.get("type"):
        case "string":
            fitting = [text for text in _EXAMPLES if re.search(part.get("pattern", ""), text)]
            return rng.choice(fitting or ["some"])
        case "integer" | "number":
            return max(part.get("minimum", 0), 64 if "multipleOf" in part else 1)
        case "boolean":
            return rng.random() < 0.5
        case "array":
            items = part.get("prefixItems") or [part.get("items", {})] * max(1, part.get("minItems", 0))
            return [_sample(whole, item, rng, depth + 1) for item in items]
        case "object":
            return _object(whole, part, rng, depth)
    return 1


def _object(whole: Mapping[str, Any], part: Mapping[str, Any], rng: Random, depth: int) -> dict[str, Any]:
    properties, required = part.get("properties", {}), part.get("required", [])
    made = {name: _sample(whole, inner, rng, depth + 1) for name, inner in properties.items() if name in required}
    for inner in _values(part) if depth < 6 else ():
        key = next(iter(part.get("patternProperties", {})), "")
        keys = part.get("propertyNames", {}).get("enum") or [t for t in _EXAMPLES if re.search(key, t)]
        made[rng.choice(keys)] = _sample(whole, inner, rng, depth + 1)
    return made


def put(data: Any, family: str, path: Path, given: Any, rng: Random) -> None:
    """Put `given(old)` at a place of `path` in `data`; what is missing on the way is made."""
    here: Any = data
    for step, name in enumerate(path[:-1]):
        key = _key(here, name, rng)
        inner = here.get(key) if isinstance(here, dict) else here[key]
        wanted = list if path[step + 1] == ITEM else dict
        if not isinstance(inner, wanted):  # missing, or another of several forms that the model allows
            inner = sample(family, path[: step + 1], rng)
            inner = here[key] = inner if isinstance(inner, wanted) else wanted()
        here = inner
    if path[-1] == KEY:
        old = rng.choice(list(here) or ["some"])
        new = given(old)
        if isinstance(new, str):
            _rename(here, old, new, keep=rng.random() < 0.5)
    else:
        key = _key(here, path[-1], rng)
        here[key] = given(here.get(key) if isinstance(here, dict) else here[key])


def _key(here: Any, name: str, rng: Random) -> Any:
    if name == ITEM:
        here.extend([None] * (not here))
        return rng.randrange(len(here))
    if name != EACH:
        return name
    return rng.choice(list(here) or ["some"])


def _rename(mapping: dict[str, Any], old: str, new: str, *, keep: bool) -> None:
    items = list(mapping.items()) or [(old, None)]
    mapping.clear()
    for name, value in items:
        if name == old and keep:
            mapping[name] = value
        mapping[new if name == old else name] = value
