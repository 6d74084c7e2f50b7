"""The JSON Schema of specs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Union

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from baracuda.runtime.plans.tuned import MARK

from .family import Family, FamilyName, families
from .language import KEY, VERSION
from .types import Strict

_GIVEN = {"description": "How the mathematics is given."}
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_KIND = {"enum": ["shape", "int", "float", "bool"]}
_SHORT: dict[str, tuple[dict[str, Any], ...]] = {
    "descriptor": (_KIND,),
    "inputs": (_TEXT, _TEXTS, {"type": "null"}),
    "outputs": (_TEXT, _TEXTS, {"type": "null"}),
    "dims": (_TEXT, {"type": "integer", "minimum": 0}),
    "kinds": (_TEXT, {"type": "null"}),
}


class _Untitled(GenerateJsonSchema):
    """Without titles, which only restate the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_text() -> str:
    """The schema as JSON. Each family has its own part, so that errors are about that one."""
    known = families()
    models: Any = Union[tuple(family.model for family in known.values())]  # noqa: UP007
    definitions = TypeAdapter(models).json_schema(schema_generator=_Untitled)["$defs"]
    described = " ".join(f"`{family.name}`: {family.doc}." for family in known.values())
    for family in known.values():
        of = definitions[family.model.__name__]["properties"]["family"]
        of["description"] = f"{of['description']} {described}"
    _tidy(definitions)
    _shorten(definitions)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"{MARK}. Do not edit.",
        KEY: VERSION,
        "type": "object",
        "properties": {"family": TypeAdapter(FamilyName).json_schema() | _GIVEN},
        "allOf": [_if_family(family, [*known.values()]) for family in known.values()],
        "$defs": definitions,
    }
    return json.dumps(schema, indent=1) + "\n"


def _if_family(family: Family, known: list[Family]) -> dict[str, Any]:
    """A spec is of the family that it names, or else of the one that it reads like."""
    named = {"required": ["family"], "properties": {"family": {"const": family.name}}}
    unnamed = {"not": {"required": ["family"]}, **_reads_like(family, known)}
    return {"if": {"anyOf": [named, unnamed]}, "then": {"$ref": f"#/$defs/{family.model.__name__}"}}


def _reads_like(family: Family, known: list[Family]) -> dict[str, Any]:
    """What holds for a file of the family that names none: its claim and no later one's, or no claim at all."""
    place = known.index(family)
    if family.claim is None:
        return {"not": {}}
    own = dict(family.claim)
    if family.takes_the_rest:
        own = {"anyOf": [*({"not": other.claim} for other in known[:place] if other.claim), own]}
    later = [{"not": other.claim} for other in known[place + 1 :] if other.claim]
    return {"allOf": [own, *later]} if later else own


def _tidy(part: Any) -> None:
    """Forbid keys that match no pattern, as pydantic does, and put descriptions on one line."""
    if isinstance(part, dict):
        if "patternProperties" in part:
            part["additionalProperties"] = False
        if isinstance(text := part.get("description"), str):
            part["description"] = " ".join(text.split())
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _tidy(inner)


def _shorten(definitions: dict[str, Any]) -> None:
    """Require only what does not follow from the rest, and take the short forms of what is left."""
    for model in _below(Strict):
        if not model.FOLLOW or (definition := definitions.get(model.__name__)) is None:
            continue
        definition["required"] = [key for key in definition.get("required", []) if key not in model.FOLLOW]
        for section, forms in _SHORT.items() if "outputs" in definition["properties"] else ():
            if section in (properties := definition["properties"]):
                _take(properties[section], forms, listed=section in ("inputs", "outputs"))
        if "require" in definition["properties"]:
            require = definition["properties"]["require"]
            require["items"] = {"anyOf": [_TEXT, require["items"]]}


def _below(model: type[Strict]) -> Iterator[type[Strict]]:
    """Every model that derives from this one."""
    for derived in model.__subclasses__():
        yield derived
        yield from _below(derived)


def _take(section: dict[str, Any], forms: tuple[dict[str, Any], ...], *, listed: bool) -> None:
    """Let the values of a mapping be of other forms, and the mapping a list of names."""
    patterns = section["patternProperties"]
    for pattern, value in patterns.items():
        patterns[pattern] = {"anyOf": [value, *forms]}
    if listed:
        mapping = {key: section.pop(key) for key in [*section] if key != "description"}
        section["anyOf"] = [mapping, {"type": "array", "items": _TEXT, "uniqueItems": True}]
