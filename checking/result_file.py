"""Result files, one line of JSON per result, and digests of the sources that results depend on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

_TEXTS = (".py", ".cu", ".cuh", ".h", ".cpp", ".yaml", ".json")


def append(path: Path, line: str) -> None:
    """Append a line; a line left unfinished by an interrupted run stays separate."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(file).st_size
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        os.write(file, b"\n" * torn + line.encode() + b"\n")
    finally:
        os.close(file)


def digest_of(folders: Iterable[Path]) -> str:
    """A digest of all text below `folders` that results depend on."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in _TEXTS):
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
