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
_INCLUDE = re.compile(rb'#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")')  # found by its first character

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
    waiting = list(_includes_of(text))
    while waiting:
        name = waiting.pop()
        if name in digests or (header := _header(root, name)) is None:
            continue
        digests[name] = header.digest
        waiting += header.includes
    return sorted(digests.items())


@lru_cache(maxsize=1024)
def _includes_of(text: str) -> tuple[str, ...]:
    return _includes(text.encode(errors="replace"), "")


def _includes(data: bytes, folder: str) -> tuple[str, ...]:
    """Names below the include folder that the #include lines of a file in `folder` may mean."""
    names = []
    for found in _INCLUDE.finditer(data):
        if data[data.rfind(b"\n", 0, found.start()) + 1 : found.start()].strip(b" \t"):
            continue  # something is in front of it
        angled, quoted = (name.decode(errors="replace") for name in found.groups(b""))
        names.append(_normal(angled or quoted))
        if quoted and folder:
            names.append(_normal(f"{folder}/{quoted}"))
    return tuple(names)


def _normal(path: str) -> str:
    return posixpath.normpath(path) if "/." in f"/{path}" or "//" in path else path


def _header(root: str, name: str) -> _Header | None:
    path = f"{root}/{name}"
    try:
        header = _read.get((root, name))
        if header is not None and header.stamp == _stamp(os.stat(path)):
            return header
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            data = file.read()
    except OSError:
        return None
    digest = hashlib.sha256(data, usedforsecurity=False).digest()
    header = _Header(_stamp(status), digest, _includes(data, posixpath.dirname(name)))
    if time.time_ns() - status.st_ctime_ns >= _TICK:  # else another change now might leave the same stamp
        _read[root, name] = header
    return header


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    """What tells a changed file; the time of the last change, unlike that of the last modification, cannot be set."""
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino
