"""What a source reaches through #include: the part of a compilation that its text does not show."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)


class _Header(NamedTuple):
    stamp: tuple[int, int, int]
    digest: bytes
    includes: tuple[tuple[str, bool], ...]


_read: dict[str, _Header] = {}


def header_digest(text: str, include: Path) -> bytes:
    """32 bytes that change when a header under `include` that `text` reaches changes, appears or disappears.

    Conditions around an #include are not evaluated. A header that is not there counts for nothing: either the
    compiler has it built in, or the compilation fails. Unchanged files are not read again.
    """
    root = os.fspath(include)
    found: dict[str, bytes] = {}
    waiting = list(_candidates(_includes(text), ""))
    while waiting:
        name = waiting.pop()
        if name in found or (header := _header(f"{root}/{name}")) is None:
            continue
        found[name] = header.digest
        waiting += _candidates(header.includes, posixpath.dirname(name))
    digest = hashlib.sha256(usedforsecurity=False)
    for name in sorted(found):
        digest.update(f"{name}\0".encode() + found[name])
    return digest.digest()


@lru_cache(maxsize=1024)
def _includes(text: str) -> tuple[tuple[str, bool], ...]:
    return tuple((angled or quoted, bool(quoted)) for angled, quoted in _INCLUDE.findall(text))


def _candidates(includes: Iterable[tuple[str, bool]], folder: str) -> Iterable[str]:
    """Names below the include folder that these lines may mean, seen from a header in `folder`."""
    for name, quoted in includes:
        yield posixpath.normpath(name)
        if quoted and folder:
            yield posixpath.normpath(f"{folder}/{name}")


def _header(path: str) -> _Header | None:
    try:
        status = os.stat(path)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = _read.get(path)
        if known is None or known.stamp != stamp:
            data = Path(path).read_bytes()
            digest = hashlib.sha256(data, usedforsecurity=False).digest()
            known = _read[path] = _Header(stamp, digest, _includes(data.decode(errors="replace")))
        return known
    except OSError:
        return None
