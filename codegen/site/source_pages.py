"""Pages that show a source file, highlighted, or list a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import jinja2

from ..text import Text
from .table import Ready, code, fenced
from .tree import Tree, link

_LANGUAGES = {
    ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".json": "json", ".jinja": "jinja", ".md": "markdown",
    ".py": "python", ".toml": "toml", ".yaml": "yaml",
}  # fmt: skip


class SourcePages:
    """Adds pages of files to a tree, each once; `known` says which files below `root` are in it by other names."""

    def __init__(self, env: jinja2.Environment, tree: Tree, root: Path, pages: Mapping[str, str]) -> None:
        self._template = env.get_template("source.md.jinja")
        self._tree, self._root, self._pages = tree, root, pages
        self._page_of: dict[str, str] = dict(pages)
        self._folders: set[str] = set()

    def text(self, path: str, text: str) -> str:
        """The page of a file named `path`; its lines have anchors."""
        page = f"source/{path}.md"
        if page not in self._tree.files:
            language = _LANGUAGES.get(PurePosixPath(path).suffix, "text")
            block = fenced(text, language, 'linenums="1"')
            self._tree.add(page, self._template.render(title=Text(path), text=block))
            self._page_of[path] = page
        return page

    def on_disk(self, path: str) -> str:
        """The page of a file or folder of the repository."""
        file = self._root / path
        if path in self._pages:
            return self._pages[path]
        return self._folder(path) if file.is_dir() else self.text(path, file.read_text(encoding="utf-8"))

    def _folder(self, path: str) -> str:
        """The page of a folder, which `add_folders` makes."""
        self._folders.add(path)
        return f"source/{path}/folder.md"

    def add_folders(self) -> None:
        """Make the pages of linked folders: their files and subfolders that have pages."""
        for folder in sorted(self._folders):
            page = f"source/{folder}/folder.md"
            direct = {f"{folder}/{child.name}" for child in (self._root / folder).iterdir() if _is_listed(child)}
            below = {path for path in self._page_of if path.startswith(f"{folder}/")}
            lines = [self._entry(page, folder, path) for path in sorted(direct | below)]
            self._tree.add(page, self._template.render(title=Text(f"{folder}/"), text=Ready("\n".join(lines))))

    def _entry(self, page: str, folder: str, path: str) -> str:
        name = code(path.removeprefix(f"{folder}/"))
        return f"- [{name}]({link(page, self._page_of[path])})" if path in self._page_of else f"- {name}"


def _is_listed(path: Path) -> bool:
    return path.name[0] not in "._" and path.is_file() and path.suffix in _LANGUAGES
