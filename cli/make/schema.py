"""`schema`: the JSON Schema of specs, and its copy beside the specs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import click

from baracuda.codegen.spec.language import FILE
from baracuda.runtime.cache.publish import publish
from baracuda.runtime.plans.tuned import MARK

_LARGEST = 1 << 20  # bytes of it that are read; ours has fewer


def schema(out: Path | None = None) -> None:
    """Write the schema to `out`, or print it."""
    from baracuda.codegen.spec.schema import schema_text

    if out is None:
        click.echo(schema_text(), nl=False)
    else:
        out.write_text(schema_text(), encoding="utf-8")


def renew(specs: Path, text: str, *, check: bool = False, create: bool = False) -> list[Path]:
    """Update the schema in a folder of specs and return what was, or with `check` would be, written.

    Files that are not ours stay. A missing one is written only with `create`.
    """
    path = specs / FILE
    current = start_of(path).decode(errors="replace") if path.is_file() else MARK if create else text
    if MARK not in current or _same(current, text):
        return []
    if not check:
        publish(path, text)
    return [path]


def start_of(path: Path) -> bytes:
    """A file's content, or enough of it to see that it is not ours; empty if there is none."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_LARGEST)


def _same(current: str, text: str) -> bool:
    """Whether both mean the same: versions of pydantic spell numbers differently."""
    with suppress(ValueError, RecursionError):
        return bool(json.loads(current) == json.loads(text))
    return False
