"""Markdown to HTML with mkdocs, for use without network and server."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from baracuda.runtime import Unsupported

from .dead_links import dead_links

_SHOWN = 20  # warnings
_MISSING = "mkdocs-material is not installed; get it with 'pip install baracuda-gen[docs]'"


def config(name: str, nav: list[Any], pages: str, out: Path) -> dict[str, Any]:
    """The content of `mkdocs.yml`. The shim makes search work on files; its default loads from the network."""
    return {
        "site_name": name,
        "docs_dir": pages,
        "site_dir": str(out.resolve()),
        "theme": {
            "name": "material",
            "font": False,
            "features": ["content.code.copy", "navigation.tabs", "search.highlight", "search.suggest", "toc.follow"],
            "palette": [
                {"media": f"(prefers-color-scheme: {scheme})", "scheme": kind, "primary": "black", "accent": "green",
                 "toggle": {"icon": f"material/weather-{icon}", "name": f"Switch to {other}"}}
                for scheme, kind, icon, other in (
                    ("light", "default", "sunny", "dark"), ("dark", "slate", "night", "light")
                )
            ],
        },
        "plugins": ["search", "offline"],
        "extra": {"generator": False, "homepage": "index.html", "polyfills": ["assets/iframe-worker-shim.js"]},
        "extra_css": ["assets/site.css"],
        "markdown_extensions": [
            "admonition", "attr_list", "md_in_html", "tables", {"toc": {"permalink": True, "toc_depth": 3}},
            {"pymdownx.highlight": {"anchor_linenums": True, "pygments_lang_class": True}},
            "pymdownx.details", "pymdownx.superfences",
        ],
        "validation": {"nav": {"omitted_files": "ignore"}, "links": {"unrecognized_links": "warn"}},
        "nav": nav,
        "strict": True,
    }  # fmt: skip


def write_config(path: Path, settings: dict[str, Any]) -> None:
    """Write it as JSON, which is YAML."""
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def require_tools() -> None:
    """Raise Unsupported if mkdocs or its theme is missing."""
    if not all(map(find_spec, ("material", "mkdocs"))):
        raise Unsupported(_MISSING)


def build(path: Path, out: Path) -> None:
    """Build the site of a `mkdocs.yml` in `out`; Unsupported if mkdocs is missing or a link is broken."""
    require_tools()
    load, run = import_module("mkdocs.config").load_config, import_module("mkdocs.commands.build").build
    abort = import_module("mkdocs.exceptions").Abort
    with _warnings() as messages:
        try:
            run(load(str(path)))
        except abort as error:
            raise Unsupported("\n".join([f"mkdocs: {error}", *messages[:_SHOWN]])) from error
    if dead := dead_links(out):
        raise Unsupported("\n".join([f"{len(dead)} links of the site are no good", *dead[:_SHOWN]]))


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The warnings of mkdocs."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("mkdocs")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
