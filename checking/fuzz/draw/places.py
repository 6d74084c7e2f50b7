"""Every place of a spec that holds a value or a key, from the model, so that new keys are included."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from random import Random
from typing import Any

from baracuda.codegen.spec.family import families

KEY, EACH, ITEM = "<key>", "<each>", "<item>"  # a mapping's key, any of its values, any item of a list
Path = tuple[str, ...]
_EXAMPLES = (
    "some", "Some", "SomePlan", "SOME", "some.cuh", "some.some", "(1,)", "rows", "f32", "sm_80", "strided",
)  # fmt: skip


@cache
def schema(family: str) -> Mapping[str, Any]:
    """The JSON Schema of a family's specs."""
    return families()[family].model.model_json_schema()


@cache
def places(family: str) -> tuple[Path, ...]:
    """Where a spec of the family can hold a value or a key."""
    return tuple(dict.fromkeys(_below(schema(family), schema(family), (), 0)))


def _below(root: Mapping[str, Any], part: Any, path: Path, depth: int) -> Iterator[Path]:
    if path:
        yield path
    if depth > 12 or not isinstance(part, Mapping):
        return
    for choice in _choices(root, part):
        for name, inner in choice.get("properties", {}).items():
            yield from _below(root, inner, (*path, name), depth + 1)
        for inner in _values(choice):
            yield (*path, KEY)
            yield from _below(root, inner, (*path, EACH), depth + 1)
        for inner in (choice.get("items"), *choice.get("prefixItems", ())):
            if inner is not None:
                yield from _below(root, inner, (*path, ITEM), depth + 1)


def _choices(root: Mapping[str, Any], part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a schema may stand for: itself, what it refers to, and each of several."""
    if "$ref" in part:
        return _choices(root, root["$defs"][part["$ref"].rpartition("/")[2]])
    return [c for option in part["anyOf"] for c in _choices(root, option)] if "anyOf" in part else [part]


def _values(part: Mapping[str, Any]) -> list[Any]:
    schemas = list(part.get("patternProperties", {}).values())
    return [*schemas, part["additionalProperties"]] if isinstance(part.get("additionalProperties"), dict) else schemas


def leaves(family: str, path: Path) -> list[Mapping[str, Any]]:
    """The schemas that a value at `path` may follow, and of a key what names it."""
    root = schema(family)
    parts: list[Any] = [root]
    for name in path:
        parts = [inner for part in parts for choice in _choices(root, part) for inner in _inner(choice, name)]
    return [choice for part in parts for choice in _choices(root, part)]


def _inner(part: Mapping[str, Any], name: str) -> list[Any]:
    if name == KEY:
        patterns = [{"type": "string", "pattern": pattern} for pattern in part.get("patternProperties", {})]
        return [*patterns, {"type": "string", **part["propertyNames"]}] if "propertyNames" in part else patterns
    if name == EACH:
        return _values(part)
    if name == ITEM:
        return [inner for inner in (part.get("items"), *part.get("prefixItems", ())) if inner is not None]
    return [part["properties"][name]] if name in part.get("properties", {}) else []


def fits(family: str, path: Path, value: Any) -> bool:
    """Whether a value at `path` is of a form that the model takes, so that what comes after it has a say."""
    return any(_fits(leaf, value) for leaf in leaves(family, path))


def _fits(leaf: Mapping[str, Any], value: Any) -> bool:
    if "enum" in leaf:
        return value in leaf["enum"]
    least, most = leaf.get("minimum", -math.inf), leaf.get("maximum", math.inf)
    match leaf.get("type"), value:
        case "string", str():
            long_enough = leaf.get("minLength", 0) <= len(value) <= leaf.get("maxLength", math.inf)
            return long_enough and re.search(leaf.get("pattern", ""), value) is not None
        case ("integer", bool()) | ("number", bool()):
            return False
        case ("integer", int()) | ("number", int() | float()):
            inside = leaf.get("exclusiveMinimum", -math.inf) < value < leaf.get("exclusiveMaximum", math.inf)
            return inside and bool(least <= value <= most)
        case ("array", list()) | ("object", dict()) | ("boolean", bool()):
            return True
    return False


def sample(family: str, path: Path, rng: Random, words: Collection[str] = ()) -> Any:
    """Something that the model takes at `path`, with names and words of `words` where it takes those."""
    schemas = leaves(family, path)
    return _sample(schema(family), rng.choice(schemas), rng, sorted(words), 0) if schemas else None


def _sample(root: Mapping[str, Any], part: Mapping[str, Any], rng: Random, names: list[str], depth: int) -> Any:
    part = rng.choice(_choices(root, part))
    if "const" in part or "enum" in part:
        words = part.get("enum", [part.get("const")])
        return rng.choice([word for word in words if word in names] or words)
    match part.get("type"):
        case "string":
            pattern = part.get("pattern", "")
            fitting = [text for text in names if re.search(pattern, text)] if rng.random() < 0.6 else []
            return rng.choice(fitting or [text for text in _EXAMPLES if re.search(pattern, text)] or ["some"])
        case "integer" | "number":
            return max(part.get("minimum", 0), 64 if "multipleOf" in part else 1)
        case "boolean":
            return rng.random() < 0.5
        case "array":
            items = part.get("prefixItems") or [part.get("items", {})] * max(1, part.get("minItems", 0))
            return [_sample(root, item, rng, names, depth + 1) for item in items]
        case "object":
            return _object(root, part, rng, names, depth)
    return 1


def _object(root: Mapping[str, Any], part: Mapping[str, Any], rng: Random, names: list[str], depth: int) -> Any:
    properties, required = part.get("properties", {}), part.get("required", [])
    result = {n: _sample(root, inner, rng, names, depth + 1) for n, inner in properties.items() if n in required}
    keys = _inner(part, KEY) or [{"type": "string"}]
    for inner in _values(part) if depth < 6 else ():
        result[_sample(root, rng.choice(keys), rng, names, depth + 1)] = _sample(root, inner, rng, names, depth + 1)
    return result


def put(data: Any, family: str, path: Path, replace: Any, rng: Random) -> None:
    """Put `replace(old)` at a place of `path` in `data`; what is missing on the way is made."""
    here, vocabulary = data, words(data)
    for step, name in enumerate(path[:-1]):
        key = _key(here, name, rng)
        inner = here.get(key) if isinstance(here, dict) else here[key]
        container = list if path[step + 1] == ITEM else dict
        if not isinstance(inner, container):  # missing, or another of several forms that the model allows
            inner = sample(family, path[: step + 1], rng, vocabulary)
            inner = here[key] = inner if isinstance(inner, container) else container()
        here = inner
    if path[-1] == KEY:
        old = rng.choice(list(here) or ["some"])
        new = replace(old)
        if isinstance(new, str):
            _rename(here, old, new, keep=rng.random() < 0.5)
    else:
        key = _key(here, path[-1], rng)
        old = here.get(key) if isinstance(here, dict) else here[key]
        here[key] = replace(sample(family, path, rng, vocabulary) if old is None else old)


def words(data: Any) -> frozenset[str]:
    """Every key and short text in `data`."""
    if isinstance(data, dict):
        return frozenset(data).union(*map(words, data.values()))
    if isinstance(data, list):
        return frozenset().union(*map(words, data))
    return frozenset({data} if isinstance(data, str) and len(data) < 40 else ())


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
