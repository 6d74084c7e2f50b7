"""The repository's own pages in the site: its README, `docs`, and files that they link to."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from baracuda.runtime import Unsupported

from .excerpts import excerpt
from .links import relinked
from .meters import metered
from .source_pages import SourcePages
from .tree import Tree, link

_PICTURES = (".png", ".svg")


@dataclass(frozen=True)
class Documents:
    """Pages of the repository in `root`; none for a project of specs alone."""

    root: Path

    @cached_property
    def pages(self) -> dict[str, str]:
        """The path of each page in the tree, by its path in the repository."""
        readme = {"README.md": "about.md"} if (self.root / "README.md").is_file() else {}
        return readme | {path: path for path in self._below_docs(".md")}

    @property
    def files(self) -> dict[str, str]:
        """All files in the tree besides source pages."""
        return self.pages | {path: path for suffix in _PICTURES for path in self._below_docs(suffix)}

    @property
    def title(self) -> str:
        """The README's heading, or nothing."""
        first = self.text("README.md").partition("\n")[0] if "README.md" in self.pages else ""
        return first.removeprefix("# ") if first.startswith("# ") else ""

    def _below_docs(self, suffix: str) -> list[str]:
        return [p.relative_to(self.root).as_posix() for p in sorted((self.root / "docs").glob(f"*{suffix}"))]

    def text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def add(self, tree: Tree, sources: SourcePages) -> None:
        """Add pages and pictures to the tree, and a page for every file and folder that they link to."""
        for path, page in self.files.items():
            content = (self.root / path).read_bytes()
            tree.add(page, self._for_page(path, page, self.text(path), sources) if path in self.pages else content)

    def excerpts(self, op: str, page: str, sources: SourcePages) -> Iterator[tuple[str, str, str]]:
        """What the pages below `docs` say about an op: heading, page, and Markdown."""
        for path, home in self.pages.items():
            if home == path and (markdown := excerpt(self.text(path), op)):
                yield heading_of(path), home, self._for_page(path, page, markdown, sources)

    def _for_page(self, path: str, page: str, text: str, sources: SourcePages) -> str:
        """The text of the file at `path` with its links adapted to the tree."""

        def page_link(target: str) -> str:
            name, mark, anchor = target.partition("#")
            linked_path = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            if linked_path.startswith("..") or not (self.root / linked_path).exists():
                raise Unsupported(f"{path}: links to {target!r}, which is not in {self.root}")
            return link(page, sources.on_disk(linked_path)) + mark + anchor

        return metered(relinked(text, page_link))


def heading_of(path: str) -> str:
    """The file's name as a heading."""
    words = posixpath.basename(path).removesuffix(".md").replace("-", " ")
    return words[:1].upper() + words[1:]
