"""`schema`: what a spec may say, as JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Union

import click
from pydantic import TypeAdapter

from ..spec import FAMILY_SPECS


def _schema() -> dict[str, Any]:
    """One schema for each family; a file fits exactly one."""
    whole = TypeAdapter(Union[tuple(FAMILY_SPECS.values())]).json_schema()  # type: ignore[arg-type]  # noqa: UP007
    return {"title": "OpSpec", **whole}


def schema(out: Path | None = None) -> None:
    """Write the schema to `out`, or print it."""
    text = json.dumps(_schema(), indent=2)
    if out is None:
        click.echo(text)
    else:
        out.write_text(f"{text}\n", encoding="utf-8")
