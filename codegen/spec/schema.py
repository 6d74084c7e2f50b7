"""The JSON Schema of specs."""

from __future__ import annotations

import json
from typing import Any, Union

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from baracuda.runtime.plans.tuned import MARK

from .spec import FAMILY_SPECS, Family


class _Untitled(GenerateJsonSchema):
    """Without titles, which only restate the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_text() -> str:
    """The schema as JSON. Each family has its own part, so that errors are about that one."""
    families: Any = Union[tuple(FAMILY_SPECS.values())]  # noqa: UP007
    definitions = TypeAdapter(families).json_schema(schema_generator=_Untitled)["$defs"]
    _tidy(definitions)
    family = TypeAdapter(Family).json_schema() | {"description": "How the mathematics is given."}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"{MARK}. Do not edit.",
        "type": "object",
        "required": ["family"],
        "properties": {"family": family},
        "allOf": [_if_family(family, model.__name__) for family, model in FAMILY_SPECS.items()],
        "$defs": definitions,
    }
    return json.dumps(schema, indent=1) + "\n"


def _if_family(family: str, definition: str) -> dict[str, Any]:
    condition = {"required": ["family"], "properties": {"family": {"const": family}}}
    return {"if": condition, "then": {"$ref": f"#/$defs/{definition}"}}


def _tidy(part: Any) -> None:
    """Forbid keys that match no pattern, as pydantic does, and put descriptions on one line."""
    if isinstance(part, dict):
        if "patternProperties" in part:
            part["additionalProperties"] = False
        if isinstance(text := part.get("description"), str):
            part["description"] = " ".join(text.split())
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _tidy(inner)
