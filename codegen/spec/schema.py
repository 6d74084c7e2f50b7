"""The JSON Schema of specs."""

from __future__ import annotations

import json
from typing import Any, Union

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from baracuda.runtime.plans.tuned import MARK

from .language import KEY, VERSION
from .spec import FAMILY_SPECS, Family

# What `defaults` fills in, by definition, and how texts and lists of names stand for mappings there.
_FOLLOWS = {
    **dict.fromkeys(
        ("RowSpec", "MapSpec", "ListSpec", "BodySpec"),
        ("category", "direction", "plan", "family", "formula", "source", "descriptor"),
    ),
    "FieldSpec": ("type", "doc"),
    "KindSpec": ("program",),
    "RowTensor": ("doc", "dims"),
    "MapTensor": ("doc", "dims"),
    "ListTensor": ("doc", "dims"),
    "BodyTensor": ("doc",),
    "ScheduleSpec": ("arch", "dtypes"),
}
_TEXT: dict[str, Any] = {"type": "string"}
_KIND = {"enum": ["shape", "int", "float", "bool"]}
_SHORT: dict[str, tuple[dict[str, Any], ...]] = {
    "descriptor": (_KIND,),
    "inputs": (_TEXT, {"type": "null"}),
    "outputs": (_TEXT, {"type": "null"}),
    "dims": (_TEXT, {"type": "integer", "minimum": 0}),
    "kinds": (_TEXT, {"type": "null"}),
}
_HAS_KINDS = {"required": ["kinds"]}
_OF_ROWS = {"anyOf": [{"const": "rest"}, {"type": "object", "required": ["axes"]}]}
_HAS_ROWS = {"required": ["dims"], "properties": {"dims": {"not": {"additionalProperties": {"not": _OF_ROWS}}}}}
_HAS_KERNELS: dict[str, Any] = {"anyOf": [{"required": ["body"]}, {"required": ["kernels"]}]}
_READS_LIKE: dict[str, dict[str, Any]] = {
    "body": _HAS_KERNELS,
    "row": {"allOf": [_HAS_ROWS, {"not": _HAS_KINDS}, {"not": _HAS_KERNELS}]},
    "map": {"allOf": [{"anyOf": [{"not": _HAS_ROWS}, _HAS_KINDS]}, {"not": _HAS_KERNELS}]},
    "list": {"not": {}},  # it is always named
}


class _Untitled(GenerateJsonSchema):
    """Without titles, which only restate the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_text() -> str:
    """The schema as JSON. Each family has its own part, so that errors are about that one."""
    families: Any = Union[tuple(FAMILY_SPECS.values())]  # noqa: UP007
    definitions = TypeAdapter(families).json_schema(schema_generator=_Untitled)["$defs"]
    _tidy(definitions)
    _shorten(definitions)
    family = TypeAdapter(Family).json_schema() | {"description": "How the mathematics is given."}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"{MARK}. Do not edit.",
        KEY: VERSION,
        "type": "object",
        "properties": {"family": family},
        "allOf": [_if_family(family, model.__name__) for family, model in FAMILY_SPECS.items()],
        "$defs": definitions,
    }
    return json.dumps(schema, indent=1) + "\n"


def _if_family(family: str, definition: str) -> dict[str, Any]:
    """A spec is of the family that it names, or else of the one that it reads like."""
    named = {"required": ["family"], "properties": {"family": {"const": family}}}
    unnamed = {"not": {"required": ["family"]}, **_READS_LIKE[family]}
    return {"if": {"anyOf": [named, unnamed]}, "then": {"$ref": f"#/$defs/{definition}"}}


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
    for name, keys in _FOLLOWS.items():
        definition = definitions[name]
        definition["required"] = [key for key in definition.get("required", []) if key not in keys]
        for section, forms in _SHORT.items() if "outputs" in definition["properties"] else ():
            if section in (properties := definition["properties"]):
                _take(properties[section], forms, listed=section in ("inputs", "outputs"))
        if "require" in definition["properties"]:
            require = definition["properties"]["require"]
            require["items"] = {"anyOf": [_TEXT, require["items"]]}


def _take(section: dict[str, Any], forms: tuple[dict[str, Any], ...], *, listed: bool) -> None:
    """Let the values of a mapping be of other forms, and the mapping a list of names."""
    patterns = section["patternProperties"]
    for pattern, value in patterns.items():
        patterns[pattern] = {"anyOf": [value, *forms]}
    if listed:
        mapping = {key: section.pop(key) for key in [*section] if key != "description"}
        section["anyOf"] = [mapping, {"type": "array", "items": _TEXT, "uniqueItems": True}]
