"""`migrate`: specs of an earlier version of the language in today's words."""

from __future__ import annotations

from pathlib import Path

import click

from baracuda.codegen.spec.language import VERSION, version_of
from baracuda.codegen.spec.migrate import migrated
from baracuda.codegen.spec.schema import schema_text
from baracuda.codegen.spec.yaml_source import read_yaml
from baracuda.codegen.spec.yaml_text import read_text
from baracuda.runtime import SpecError
from baracuda.runtime.cache.publish import publish

from .schema import renew


def migrate(specs: Path, version: int | None = None, *, check: bool = False) -> bool:
    """Rewrite the specs of a folder that are of `version`, by default of what its schema says.

    With `check`, only report, and return false if anything would change.
    """
    if not specs.is_dir():
        raise SpecError(f"{specs}: no such folder of specs; pass --specs")
    version = version or version_of(specs)
    if version > VERSION:
        raise SpecError(f"{specs}: specs are of language {version}, this release reads {VERSION}; install a later one")
    changed = {}
    for path in sorted(specs.rglob("*.yaml")):
        read_yaml(path)  # a file that is none is refused before any is written
        if (new := migrated(old := read_text(path), version)) != old:
            changed[path] = new
    for path, text in changed.items():
        if not check:
            publish(path, text.replace("\n", "\r\n") if b"\r\n" in path.read_bytes() else text)
        click.echo(f"{'would change' if check else 'changed'}: {path}")
    renewed = renew(specs, schema_text(), check=check)
    click.echo(f"{len(changed)} of the specs {'differ' if check else 'differed'} from language {VERSION}")
    return not (check and (changed or renewed))
