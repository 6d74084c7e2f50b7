"""The one Jinja environment: undefined names are errors, blocks leave no blank lines, and templates see only the op."""

from __future__ import annotations

import textwrap
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .families import FAMILIES
from .line_map import render_mapped
from .model import Op
from .tuned import generated_text

_COLUMNS = 120  # of a line of generated Python


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
    env.filters["fitted"] = fitted
    env.filters["spelled"] = spelled
    return env


def fitted(expression: str, used: int, indent: int) -> str:
    """A Python expression that stands in parentheses: as it is, or on lines of its own when, with the `used` columns
    around it, it is too long for one."""
    if used + len(expression) <= _COLUMNS:
        return expression
    if expression.startswith("(") and expression.endswith(")"):  # the parentheses are its own
        return f"({fitted(expression[1:-1], _COLUMNS, indent)})"
    inner = " " * (indent + 4)
    lines = textwrap.wrap(expression, _COLUMNS - indent - 4, break_long_words=False, break_on_hyphens=False)
    return "\n" + "\n".join(inner + line for line in lines) + "\n" + " " * indent


def spelled(text: str, indent: int) -> str:
    """A string literal, in parts on lines of their own where it is too long for one."""
    if indent + len(python(text)) < _COLUMNS:
        return python(text)
    parts = textwrap.wrap(text, _COLUMNS - indent - 8, drop_whitespace=False, break_long_words=False)
    return ("\n" + " " * indent).join(python(part) for part in parts)


def python(value: object) -> str:
    """A literal as ruff would print it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{python(k)}: {python(v)}" for k, v in value.items()) + "}"
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
    if op.tuned:
        texts[f"{op.category}/{op.name}.json"] = generated_text(op.name, dict(op.tuned))
    return texts
