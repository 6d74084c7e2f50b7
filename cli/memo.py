"""A memo on disk: an answer stays valid as long as everything that it depends on is unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from baracuda.runtime.cache.folder import CacheFolder
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.errors import UnsafeCache

from . import STARTED

_LARGEST = 1 << 24  # bytes of a file that count: far more than a spec may have
_OURS = tuple(
    Path(__file__).resolve().parents[1] / name
    for name in ("checking", "cli", "codegen", "runtime", "templates", "ops")
)


@dataclass(frozen=True)
class Question:
    """A `query` about a folder of specs, and other `inputs` of its answer, in values whose reprs are exact."""

    specs: Path
    templates: Sequence[Path]
    query: tuple[object, ...]
    inputs: tuple[object, ...] = ()
    tools: tuple[Path, ...] = _OURS

    def recall(self) -> Any:
        """The remembered answer, as JSON, if it is still valid; else None."""
        began_as = self._began_as  # before anything else is read
        with suppress(OSError, ValueError, RecursionError, UnsafeCache):
            content = self._answers.read(self._name) or b""
            mark, _, answer = content.decode().partition("\n")
            if mark == _digest(began_as + answer.encode()):
                return json.loads(answer)
        return None

    def remember(self, answer: Any) -> None:
        """Store `answer`, unless a file changed since `recall`, or the cache cannot be written."""
        if self._key() == self._began_as:
            text = json.dumps(answer)
            with suppress(OSError, UnsafeCache):
                self._answers.write(self._name, f"{_digest(self._began_as + text.encode())}\n{text}".encode())

    @property
    def _answers(self) -> CacheFolder:
        return CacheFolder(cache_root() / "answers")

    @property
    def _name(self) -> str:
        """The file of the query's latest answer."""
        return _digest(repr((self.specs.resolve(), self.query)).encode())

    @cached_property
    def _began_as(self) -> bytes:
        return self._key()

    def _key(self) -> bytes:
        """A key of every file that decides, of Python, and of the installed packages' versions.

        It is never the same twice if a source is younger than this process, which may still run the old one, or if
        there are the caller's own templates, as plans generated from these may import anything.
        """
        sources = [_files_of(folder) for folder in self.tools]
        patterns = "**/*.yaml", "**/*.cuh", "**/*.py", "tuned/*/*.json", "*.txt"  # what `load_folder` reads
        specs = [sorted(self.specs.glob(pattern)) for pattern in patterns]
        folders = *zip(self.tools, sources, strict=True), *((self.specs, paths) for paths in specs)
        contents = [[(path.relative_to(folder), _content(path)) for path in paths] for folder, paths in folders]
        old = all(_is_old(path) for paths in sources for path in paths)  # checked after they were read
        once = os.urandom(32) if self.templates or not old else b""
        return repr((sys.version, [*_installed()], contents, self.inputs, once)).encode()


def _files_of(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.relative_to(folder).parts)


def _is_old(path: Path) -> bool:
    with suppress(OSError):
        status = path.stat()
        return max(status.st_mtime, status.st_ctime) < STARTED  # an editor may set the first, nobody the second
    return False


def _content(path: Path) -> str:
    """A digest of what a file holds; none where there is nothing to be read."""
    with suppress(OSError):
        if path.is_file():  # reading a pipe would wait for ever
            with path.open("rb") as file:
                return _digest(file.read(_LARGEST))
    return ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content, usedforsecurity=False).hexdigest()


def _installed() -> Iterator[str]:
    """The names of what installers note beside packages, which have their versions."""
    for folder in sys.path:
        with suppress(OSError):
            yield from sorted(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
