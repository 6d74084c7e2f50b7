"""Pages that show a file of the repository, highlighted, or what is in one of its folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import jinja2

from .table import code, fenced
from .tree import Tree, link

_LANGUAGES = {
    ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".json": "json", ".jinja": "jinja", ".md": "markdown",
    ".py": "python", ".toml": "toml", ".yaml": "yaml",
}  # fmt: skip


class SourcePages:
    """Adds pages of files to a tree, each once; `known` says which files below `root` are in it by other names."""

    def __init__(self, env: jinja2.Environment, tree: Tree, root: Path, known: Mapping[str, str]) -> None:
        self._template = env.get_template("source.md.jinja")
        self._tree, self._root, self._known = tree, root, known

    def text(self, path: str, text: str) -> str:
        """The page of a file that is called `path`; its lines have anchors."""
        page = f"source/{path}.md"
        if page not in self._tree.files:
            language = _LANGUAGES.get(PurePosixPath(path).suffix, "text")
            shown = fenced(text, language, 'linenums="1"')
            self._tree.add(page, self._template.render(title=path, text=shown))
        return page

    def on_disk(self, path: str) -> str:
        """The page of a file or folder of the repository."""
        place = self._root / path
        if path in self._known:
            return self._known[path]
        return self._folder(path) if place.is_dir() else self.text(path, place.read_text(encoding="utf-8"))

    def _folder(self, path: str) -> str:
        page = f"source/{path}/folder.md"
        if page not in self._tree.files:
            inside = (child for child in sorted((self._root / path).iterdir()) if _is_shown(child))
            lines = "\n".join(self._entry(page, child) for child in inside)
            self._tree.add(page, self._template.render(title=f"{path}/", text=lines))
        return page

    def _entry(self, page: str, child: Path) -> str:
        """A line for what is in a folder; folders in it are named only."""
        if child.is_dir():
            return f"- {code(child.name + '/')}"
        return f"- [{code(child.name)}]({link(page, self.on_disk(child.relative_to(self._root).as_posix()))})"


def _is_shown(path: Path) -> bool:
    return path.name[0] not in "._" and (path.is_dir() or path.suffix in _LANGUAGES)
