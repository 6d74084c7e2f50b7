"""Digests of the headers that a source includes."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

INCLUDE = Path(__file__).parent.parent / "include"
_INCLUDE = re.compile(r'#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")')  # found by its first character


_TICK = 100_000_000  # ns; file systems' clocks are coarser than the processor's


class _Header(NamedTuple):
    stamp: tuple[int, int, int, int]
    digest: bytes
    includes: tuple[str, ...]  # names below the include folder that its lines may mean


_read: dict[tuple[str, str], _Header] = {}


def header_digest(text: str, include: Path) -> bytes:
    """32 bytes that change when a header under `include` that `text` reaches changes, appears or disappears."""
    digest = hashlib.sha256(usedforsecurity=False)
    for name, own in header_digests(text, include):
        digest.update(f"{name}\0".encode() + own)
    return digest.digest()


def header_digests(text: str, include: Path) -> list[tuple[str, bytes]]:
    """Digest of each header under `include` that `text` reaches, by name.

    Conditions around an #include are not evaluated. Missing headers are skipped: either the compiler has them built in,
    or compilation fails. Unchanged files are not read again.
    """
    root = os.fspath(include)
    digests: dict[str, bytes] = {}
    waiting = list(_includes(text, ""))
    while waiting:
        name = waiting.pop()
        if name in digests or (header := _header(root, name)) is None:
            continue
        digests[name] = header.digest
        waiting += header.includes
    return sorted(digests.items())


@lru_cache(maxsize=1024)
def _includes(text: str, folder: str) -> tuple[str, ...]:
    """Names below the include folder that the #include lines of a file in `folder` may mean."""
    names = []
    for found in _INCLUDE.finditer(text):
        if text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip(" \t"):
            continue  # something is in front of it
        angled, quoted = found.groups()
        names.append(_normal(angled or quoted))
        if quoted and folder:
            names.append(_normal(f"{folder}/{quoted}"))
    return tuple(names)


def _normal(path: str) -> str:
    return posixpath.normpath(path) if "/." in f"/{path}" or "//" in path else path


def _header(root: str, name: str) -> _Header | None:
    try:
        status = os.stat(f"{root}/{name}")
        # The time of the last change, unlike that of the last modification, cannot be set.
        stamp = (status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino)
        header = _read.get((root, name))
        if header is None or header.stamp != stamp:
            with open(f"{root}/{name}", "rb", buffering=0) as file:
                data = file.read()
            digest = hashlib.sha256(data, usedforsecurity=False).digest()
            text = data.decode(errors="replace")
            header = _Header(stamp, digest, _includes(text, posixpath.dirname(name)))
            if time.time_ns() - status.st_ctime_ns < _TICK:  # another change now might leave the same stamp
                return header
            _read[root, name] = header
        return header
    except OSError:
        return None
