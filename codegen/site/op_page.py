"""The page of an op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jinja2

from baracuda.runtime import Registered

from ..lower.op import Op
from ..spec.load import Loaded
from ..text import Code, names
from .kernel_rows import Resources, grid_rows, kernels_by_element, tuned_rows
from .op_rows import (
    allowance_rows,
    argument_rows,
    field_rows,
    precision_rows,
    promise_rows,
    relation_of,
    requirement_rows,
)
from .table import Ready, code, fenced, plain
from .tree import link

Named = tuple[str, str]  # a title and a path of the tree


@dataclass(frozen=True)
class Extras:
    """What a page shows besides spec and kernels: paths in the tree, and Markdown of other pages."""

    sources: Sequence[Named]  # the generated kernels come first
    excerpts: Sequence[tuple[str, str, str]]  # heading, path of the page, Markdown
    pictures: Sequence[Named]


def path_of(name: str) -> str:
    """The path of an op's page."""
    return f"ops/{name}.md"


def op_page(
    env: jinja2.Environment,
    op: Op,
    loaded: dict[str, Loaded],
    kernels: Sequence[Registered],
    resources: Resources,
    extras: Extras,
    package: str,
) -> str:
    """The page of an op, as Markdown."""
    page, spec = path_of(op.name), loaded[op.name].spec
    sources = [(title, Code(link(page, path))) for title, path in extras.sources]
    return env.get_template("op.md.jinja").render(
        op=op,
        package=Code(".".join(names(package.split(".")))),
        formula=fenced("\n".join(op.formula), "text"),
        relations=[(code(name), Code(link(page, path_of(name)))) for name in relation_of(loaded, op.name)],
        arguments=argument_rows(op, spec),
        fields=field_rows(op, spec),
        requirements=requirement_rows(op),
        promises=promise_rows(op),
        precision=precision_rows(spec),
        allowances=allowance_rows(spec),
        count=len(kernels),
        grid=grid_rows(op, kernels),
        tuned=tuned_rows(op),
        elements=kernels_by_element(op, kernels, resources),
        excerpts=[
            (Ready(heading), Code(link(page, path)), Ready(text.strip())) for heading, path, text in extras.excerpts
        ],
        pictures=[(plain(title), Code(link(page, path))) for title, path in extras.pictures],
        sources=sources,
    )
