"""`schema`: what a spec may say, as JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..spec import OpSpec


def schema(out: Path | None = None) -> None:
    """Write the schema to `out`, or print it."""
    text = json.dumps(OpSpec.model_json_schema(), indent=2)
    if out is None:
        click.echo(text)
    else:
        out.write_text(f"{text}\n", encoding="utf-8")
