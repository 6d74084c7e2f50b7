"""All pages of the site, from a project, its kernels and its repository."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from baracuda.runtime import Registered
from baracuda.runtime.compile.cubin import INCLUDE

from ..emit.generate import TEMPLATES
from ..emit.render import environment
from ..lower.op import Op
from ..spec.load import Loaded
from ..text import Text
from .documents import Documents, heading_of
from .kernel_rows import Resources, by_arch
from .op_page import Extras, Named, op_page, path_of
from .source_pages import SourcePages
from .table import Ready, Row, code, indented, plain, table
from .tree import Tree, link

_INCLUDED = re.compile(r"^#include <(baracuda/[\w.]+)>", re.MULTILINE)
_ASSETS = ("iframe-worker-shim.js", "site.css")


@dataclass(frozen=True)
class Catalogue:
    """The input of the site; `files` are the generated ones by their path below the folder named `out`."""

    loaded: dict[str, Loaded]
    ops: dict[str, Op]
    files: Mapping[str, str]
    kernels: Sequence[Registered]
    resources: Resources
    documents: Documents
    package: str
    pictures: Callable[[str], Mapping[str, bytes]] = lambda op: {}  # SVG of an op, by title

    def kernels_of(self, op: Op) -> list[Registered]:
        return [kernel for kernel in self.kernels if kernel.sku.op == op.name]


def pages(catalogue: Catalogue) -> Tree:
    """The Markdown, the pictures and the assets."""
    env, tree = _environment(), Tree()
    sources = SourcePages(env, tree, catalogue.documents.root, catalogue.documents.files)
    for op in catalogue.ops.values():
        extras = Extras(
            sources=_sources(catalogue, op, sources),
            excerpts=list(catalogue.documents.excerpts(op.name, path_of(op.name), sources)),
            pictures=_pictures(catalogue, op, tree),
        )
        arguments = catalogue.kernels_of(op), catalogue.resources, extras, catalogue.package
        tree.add(path_of(op.name), op_page(env, op, catalogue.loaded, *arguments))
    catalogue.documents.add(tree, sources)
    sources.add_folders()
    tree.add("index.md", _index(env, catalogue))
    for name in _ASSETS:
        tree.add(f"assets/{name}", (TEMPLATES / "site" / name).read_bytes())
    return tree


def navigation(catalogue: Catalogue) -> list[Any]:
    """The tabs: the catalogue with its ops by category, then the repository's pages."""
    grouped = [{category.replace("_", " "): [path_of(op.name) for op in ops]} for category, ops in _grouped(catalogue)]
    pages = catalogue.documents.pages.items()
    about = [{"Overview" if page == "about.md" else heading_of(path): page} for path, page in pages]
    return [{"Catalogue": ["index.md", *grouped]}, *([{"Documentation": about}] if about else [])]


def _environment() -> jinja2.Environment:
    env = environment((TEMPLATES / "site",), "md")
    env.filters.update(table=table, plain=plain, code=code, indent=indented)
    return env


def _grouped(catalogue: Catalogue) -> list[tuple[str, list[Op]]]:
    """The ops of each category, a forward before its backward."""
    categories = sorted({op.category for op in catalogue.ops.values()})
    return [(name, [op for op in catalogue.ops.values() if op.category == name]) for name in categories]


def _sources(catalogue: Catalogue, op: Op, sources: SourcePages) -> list[Named]:
    """Pages of all sources of the op, generated kernels first."""
    paths = [(f"{op.category}/{op.name}{suffix}", kind) for suffix, kind in ((".cu", "kernels"), (".py", "plan"))]
    files = [(kind, f"generated/{path}", catalogue.files[path]) for path, kind in paths]
    files.append(("spec", op.spec_path, catalogue.loaded[op.name].source.path.read_text(encoding="utf-8")))
    files += [("device code", f"runtime/include/{name}", text) for name, text in _headers(files[0][2]).items()]
    return [(f"{kind}: {path}", sources.text(path, text)) for kind, path, text in files]


def _headers(text: str) -> dict[str, str]:
    """Our headers that a text includes, directly or not, with their texts."""
    headers: dict[str, str] = {}
    names = _INCLUDED.findall(text)
    for name in names:  # which grows
        if name not in headers:
            headers[name] = (INCLUDE / name).read_text(encoding="utf-8")
            names += _INCLUDED.findall(headers[name])
    return headers


def _pictures(catalogue: Catalogue, op: Op, tree: Tree) -> list[Named]:
    pictures = catalogue.pictures(op.name).items()
    return [(title, tree.add(f"pictures/{op.name}_{n}.svg", svg)) for n, (title, svg) in enumerate(pictures)]


def _index(env: jinja2.Environment, catalogue: Catalogue) -> str:
    tables = []
    for category, ops in _grouped(catalogue):
        elements = list(dict.fromkeys(element for op in ops for element in op.elements))
        tables.append((Text(category.replace("_", " ")), [_grid(catalogue, op, elements) for op in ops]))
    return env.get_template("index.md.jinja").render(
        ops=catalogue.ops, count=len(catalogue.kernels), categories=tables
    )


def _grid(catalogue: Catalogue, op: Op, elements: Sequence[str]) -> Row:
    """An op's row: the number of kernels per element type."""
    page, kernels = link("index.md", path_of(op.name)), catalogue.kernels_of(op)
    counts = {e: sum(k.sku.element == e for k in kernels) for e in elements}
    return {
        "operation": Ready(f"[{code(op.name)}]({page})"),
        **{e: Ready(f"[{n}]({page}#{e})") if n else "" for e, n in counts.items()},
        "made for": ", ".join(f"{arch} {n}" for arch, n in by_arch(kernels).items()),
        "what it does": op.doc,
    }
