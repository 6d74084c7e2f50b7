"""Renders templates. They see only the op and print only values of a type that says how; see `text`.

Undefined names are errors, and blocks leave no blank lines. A template's own strings within expressions are code; `~`
and `join` give code only if all parts are code. So text of a spec never reaches a file unescaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from ..lower.op import Op
from ..spec.family import families
from ..spec.tuned import generated_text
from ..text import Code, Text, laid_out, printed, python
from . import device, docs
from .declared import annotation, array_names, declared_of, field_of, run_line, table_of
from .line_map import render_mapped, with_headers

_NOTHING = Code("")
# Of Jinja's filters those that keep types, or lose them: none that declares text to be safe.
_KEPT = ("default", "first", "indent", "last", "length", "list", "lower", "map", "sort", "trim", "upper")


class _Typed(ImmutableSandboxedEnvironment):
    """Marks strings within a template's expressions as code, and makes `~` check its parts' types."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template: nodes.Template = _marked(super()._parse(source, name, filename))
        return template


def _marked(node: Any) -> Any:
    """The node, with each string and each `~` passed to the filter that types it."""
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        return _filtered(node, "literal")
    for field, value in node.iter_fields():
        if isinstance(value, nodes.Node):
            setattr(node, field, _marked(value))
        elif isinstance(value, list):
            value[:] = [_marked(item) if isinstance(item, nodes.Node) else item for item in value]
    return _filtered(nodes.List(node.nodes), "joined", node.lineno) if isinstance(node, nodes.Concat) else node


def _filtered(node: Any, name: str, line: int | None = None) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=line or node.lineno)


def environment(folders: tuple[Path, ...], language: str) -> jinja2.Environment:
    """The environment for files of a `language` of `text.ESCAPE`. `folders` are searched in order, so that a project
    can add families.
    """

    def finalize(value: object) -> Markup:
        if isinstance(value, jinja2.Undefined):
            return Markup(str(value))  # nothing of `"text" if condition`; a name that is not there raises
        return printed(value, language)

    env = _Typed(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,  # so that a macro's result is known to be printed already
        finalize=finalize,
    )
    env.filters = {name: env.filters[name] for name in _KEPT}
    env.filters.update(python=python, laid_out=laid_out, literal=Code, joined=joined, join=join)
    env.filters.update(device.FILTERS | docs.FILTERS)
    of_plans = (annotation, array_names, field_of, run_line, table_of)
    env.filters.update({function.__name__: function for function in of_plans})
    return env


def joined(parts: Iterable[object]) -> Code | Text:
    """The concatenation of all parts."""
    return join(parts)


def join(parts: Iterable[object], between: object = _NOTHING) -> Code | Text:
    """Python's `join` for typed parts; with prose among them, the result is prose."""
    items = list(parts)
    for part in (between, *items):
        if not (isinstance(part, Code | Text) or type(part) is int):
            raise TypeError(f"a template joins a bare {type(part).__name__}, {part!r:.80}; it needs a type")
    text = str(between).join(map(str, items))
    return Text(text) if any(isinstance(part, Text) for part in (between, *items)) else Code(text)


@cache
def environments(folders: tuple[Path, ...]) -> Mapping[str, jinja2.Environment]:
    """One environment per language of generated files; templates are compiled once."""
    return {language: environment(folders, language) for language in ("cu", "py", "pyi")}


def render(envs: Mapping[str, jinja2.Environment], op: Op) -> dict[str, str]:
    """The text of each file of `op`, by its path below the output folder."""
    texts = {}
    for template in families()[op.family].templates:
        suffix = Path(template.removesuffix(".jinja")).suffix
        env = envs[suffix[1:]]
        if suffix == ".cu":
            text = with_headers(render_mapped(env, template, op=op), op.own_headers)
        else:
            text = env.get_template(template).render(op=op, declared=declared_of(op))
        texts[f"{op.category}/{op.name}{suffix}"] = text
    if op.tuned:
        texts[f"{op.category}/{op.name}.json"] = generated_text(op.name, dict(op.tuned))
    return texts
