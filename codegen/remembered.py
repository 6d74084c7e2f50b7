"""What a command found out, kept on disk under a digest of all that it follows from: its input, and the tools here."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from baracuda.runtime.cache_root import cache_root
from baracuda.runtime.entry_store import EntryStore, entry_store

from . import STARTED

_OURS = tuple(Path(__file__).resolve().parent.parent / name for name in ("codegen", "runtime", "templates"))


@dataclass(frozen=True)
class Question:
    """What is `asked` of a folder of specs, in values whose reprs are exact; the answer is for JSON to hold."""

    specs: Path
    templates: Sequence[Path]
    asked: tuple[object, ...]
    tools: tuple[Path, ...] = _OURS

    def recall(self) -> Any:
        """The answer that was remembered, or None."""
        with suppress(ImportError):  # the store needs cuda.core, which generating does not
            if body := self._store.get(self._began_as):
                return json.loads(zlib.decompress(body))
        return None

    def remember(self, answer: Any) -> None:
        """Keep `answer`, unless something was written since it was asked for."""
        with suppress(ImportError):
            if self._key() == self._began_as:
                self._store.put(self._began_as, zlib.compress(json.dumps(answer).encode()))

    @property
    def _store(self) -> EntryStore:
        return entry_store(cache_root() / "answers")

    @cached_property
    def _began_as(self) -> bytes:
        return self._key()

    def _key(self) -> bytes:
        """Of every byte that decides, of Python, and of the versions of what is installed.

        Another one each time where a source is younger than this process, which may run the old one, and where there
        are others' templates, for plans made by these may import what nobody here knows of.
        """
        sources = [_files_of(folder) for folder in self.tools]
        specs = sorted(self.specs.rglob("*.yaml")), sorted(self.specs.glob("tuned/*/*.json"))  # as `load_folder` does
        folders = *zip(self.tools, sources, strict=True), *((self.specs, found) for found in specs)
        held = [[(path.relative_to(folder), _digest(path)) for path in found] for folder, found in folders]
        young = any(path.stat().st_mtime >= STARTED for found in sources for path in found)
        once = os.urandom(32) if young or self.templates else b""
        facts = sys.version, [*_installed()], held, self.specs.resolve().name, self.asked, once
        return hashlib.sha256(repr(facts).encode(), usedforsecurity=False).digest()


def _files_of(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.relative_to(folder).parts)


def _digest(path: Path) -> bytes:
    """Of what a file holds; none where there is nothing to be read."""
    with suppress(OSError):
        if path.is_file():  # reading a pipe would wait for ever
            return hashlib.sha256(path.read_bytes(), usedforsecurity=False).digest()
    return b""


def _installed() -> Iterator[str]:
    """The names of what installers note beside packages, which have their versions."""
    for folder in sys.path:
        with suppress(OSError):
            yield from sorted(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
