"""The folder that generated files are in: compared with what it should hold, and made to hold exactly that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from baracuda.runtime import SpecError
from baracuda.runtime.publish import publish
from baracuda.runtime.tuned import MARK

# A line that opens with the mark, as a generated file has; text that only mentions it has none.
_MARKED = re.compile(rf'^(// |"""| ")?{MARK}\b', re.MULTILINE)


@dataclass(frozen=True)
class Changes:
    """What writing did, or would do, to the output folder; paths are relative to it."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def any(self) -> bool:
        return bool(self.written or self.removed)


def compare(files: Mapping[str, str], out: Path) -> Changes:
    """Say what `write` would do."""
    kept = [path for path, text in files.items() if _read(out / path) == text]
    written = [path for path in files if path not in kept]
    for path in written:
        there = _read(out / path)
        if there is not None and there != "" and not _MARKED.search(there):
            raise SpecError(f"{out / path}: was not generated, so it is not overwritten; move it away")
    orphans = [p.relative_to(out).as_posix() for p in sorted(out.rglob("*")) if _is_orphan(p, files, out)]
    return Changes(tuple(sorted(written)), tuple(orphans), tuple(sorted(kept)))


def write(files: Mapping[str, str], out: Path) -> Changes:
    """Make `out` hold exactly `files` among its generated ones; other files stay as they are."""
    changes = compare(files, out)
    for path in changes.written:
        publish(out / path, files[path])
    for path in changes.removed:
        (out / path).unlink(missing_ok=True)
        for folder in (out / path).parents:
            if folder == out or any(p.name != "__pycache__" for p in folder.iterdir()):
                break
            _remove_empty(folder)
    return changes


def _remove_empty(folder: Path) -> None:
    for cached in folder.glob("__pycache__/*.pyc"):
        cached.unlink()
    for inner in (folder / "__pycache__", folder):
        if inner.exists():
            inner.rmdir()


def _read(path: Path) -> str | None:
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    return "a folder, say" if path.exists() or path.is_symlink() else None


_SUFFIXES = (".cu", ".py", ".pyi", ".typed", ".json")


def _is_orphan(path: Path, files: Mapping[str, str], out: Path) -> bool:
    if path.suffix not in _SUFFIXES or path.relative_to(out).as_posix() in files or not path.is_file():
        return False
    return bool(_MARKED.search(path.read_text(encoding="utf-8", errors="replace")[:20_000]))
