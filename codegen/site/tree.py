"""The Markdown sources of a site: pages and pictures by path, and links between them."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from pathlib import Path

from baracuda.runtime.cache.publish import publish

Content = str | bytes


@dataclass
class Tree:
    """Files by their path below the Markdown folder; paths use `/` on every system."""

    files: dict[str, Content] = field(default_factory=dict)

    def add(self, path: str, content: Content) -> str:
        """Add a file, or the same one again; returns its path."""
        if self.files.setdefault(path, content) != content:
            raise AssertionError(f"two files of the site would be {path!r}")
        return path

    def write(self, folder: Path) -> None:
        """Write all files below `folder`."""
        for path, content in self.files.items():
            publish(folder / path, content)


def link(page: str, target: str) -> str:
    """The link from one file to another, with its anchor."""
    path, mark, anchor = target.partition("#")
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + mark + anchor
