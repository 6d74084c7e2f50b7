"""The one Jinja environment: undefined names are errors, blocks leave no blank lines, and templates see only the op."""

from __future__ import annotations

from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .families import FAMILIES
from .line_map import render_mapped
from .model import Op


def environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    """Templates are looked for in each of `folders` in turn, so that a project can bring its own families."""
    env = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["python"] = python
    return env


def python(value: object) -> str:
    """A literal as ruff would print it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        items = [python(v) for v in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return repr(value)


def render(env: jinja2.Environment, op: Op) -> dict[str, str]:
    """Return the text of each file that `op` becomes, by its path below the output folder."""
    texts = {}
    for template in FAMILIES[op.family]:
        suffix = template.removeprefix(op.family).removesuffix(".jinja")
        mapped = suffix.endswith(".cu")
        text = render_mapped(env, template, op=op) if mapped else env.get_template(template).render(op=op)
        texts[f"{op.category}/{op.name}{suffix}"] = text
    return texts
