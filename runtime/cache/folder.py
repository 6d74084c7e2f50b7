"""A folder of cached files: atomic writes, checksums over name and content, private modes, LRU eviction."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from ..observe import log
from .lock import key_lock, remove_unheld
from .private import check_private, is_private, make_private, shared
from .publish import publish, remove_left
from .root import cache_root

MOST_BYTES = 1 << 30  # of a folder; a light kernel takes about 6 kB, for the host device 40 kB
MOST_DAYS = 90  # since it was used last
SEAL_BYTES = 32
_DAY = 86400.0
_HOUR = 3600.0  # stamps of use are as exact as this
LOCKS, BUILDING = "locks", "tmp"  # folders that hold no entries
# The names of what caches write: nothing else is ever listed or removed, whatever folder a cache is put in.
_BUILT = r"(?:runtime-)?[0-9a-f]{40}\.so"
_ENTRY = re.compile(
    rf"/(?:entries/[0-9a-f]{{2}}/[0-9a-f]{{62}}|[0-9a-f]{{64}}|{_BUILT}|vocabulary-[0-9a-f]{{40}}/\w+\.h\.gch)\Z"
)
_LOCK = re.compile(rf"[0-9a-f]{{64}}|{_BUILT}|vocabulary-[0-9a-f]{{40}}-\w+\.h\.gch")
_PLACE = re.compile(r"([0-9a-f]{16})(?:\.lock)?")


class Entry(NamedTuple):
    """A cache file; `used` is the time of its last use."""

    path: Path
    nbytes: int
    used: float


class CacheFolder:
    """Files below `folder`. Every method may raise OSError, and UnsafeCache where others may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = cache_root()
        self._top = root if folder.is_relative_to(root) else folder  # the outermost folder that is ours
        self._unswept = MOST_BYTES  # bytes written since the last look at the size; the first write looks

    def read(self, name: str, *, use: bool = True) -> bytes | None:
        """The content of `name`; None if there is none or it is damaged. `use` records the use."""
        path = self.folder / name
        try:
            check_private(path.parent, self._top)
            with _opened(path) as (file, status):
                body = unsealed(path, _content(file, status))
                if use:
                    _stamp(file, status)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if body is None:
            log_once(f"kernel cache entry {path} is damaged; it is made again")
        return body

    def write(self, name: str, body: bytes) -> None:
        """Write `name` atomically."""
        path = self.folder / name
        make_private(path.parent, self._top)
        publish(path, body + seal(path, body), mode=None if shared() else 0o600)
        self._unswept += len(body)
        if self._unswept > MOST_BYTES // 16:
            self._unswept = 0
            sweep(self.folder)
            prune(self.folder)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Exclude all other threads and processes from `name`; where locks are unavailable, exclude none."""
        locks = self.folder / LOCKS
        with ExitStack() as stack:
            with suppress(OSError):
                make_private(locks, self._top)
                stack.enter_context(key_lock(locks / name.replace("/", "-"), mode=_lock_mode()))
            yield

    @contextmanager
    def building(self) -> Iterator[Path]:
        """An empty folder to make an entry in; removed at the end, or by the next `sweep` if this process dies."""
        place = self.folder / BUILDING / token_hex(8)
        make_private(place.parent, self._top)
        with ExitStack() as stack:
            with suppress(OSError):
                stack.enter_context(key_lock(place.with_suffix(".lock"), mode=_lock_mode()))
            make_private(place, self._top)
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            yield place


def _lock_mode() -> int:
    """The mode of locks: in a shared cache others must be able to wait for them; the umask applies."""
    return 0o666 if shared() else 0o600


@lru_cache(maxsize=1024)
def log_once(message: str) -> None:
    log.warning(message)


def seal(path: Path, body: bytes) -> bytes:
    """A digest of an entry's content and name (its key), so that it is invalid under another name."""
    name = os.fsencode(f"{path.parent.name}/{path.name}\0")
    return hashlib.sha256(name + body, usedforsecurity=False).digest()


def unsealed(path: Path, content: bytes) -> bytes | None:
    """The entry in the `content` of `path`; None if it is damaged."""
    body = content[:-SEAL_BYTES]
    return body if content[-SEAL_BYTES:] == seal(path, body) else None


def is_intact(path: Path) -> bool:
    """Whether a cache file has what was written there, by a trusted user."""
    with suppress(OSError), _opened(path) as (file, status):
        return unsealed(path, _content(file, status)) is not None
    return False


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # not waiting for the writer of a pipe
    try:
        yield file, os.fstat(file)
    finally:
        os.close(file)


def _content(file: int, status: os.stat_result) -> bytes:
    """A file's content; empty, which fails the check, if anybody may have written it or it is not a file."""
    if not stat.S_ISREG(status.st_mode) or not is_private(status) or status.st_size > MOST_BYTES:
        return b""
    with open(file, "rb", closefd=False) as stream:
        return stream.read()


def _stamp(file: int, status: os.stat_result) -> None:
    """Record the use of the entry, as its modification time."""
    if abs(time.time() - status.st_mtime) > _HOUR:
        with suppress(OSError):  # another's entry may be used all the same
            os.utime(file)


def entries(folder: Path) -> list[Entry]:
    """The files below `folder` that are named like entries, most recently used first."""
    entries = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in (LOCKS, BUILDING)]
        for path in (Path(at, name) for name in names if _ENTRY.search(f"{at}/{name}")):
            with suppress(OSError):
                status = os.lstat(path)
                entries.append(Entry(path, status.st_size, status.st_mtime))
    return sorted(entries, key=lambda entry: -entry.used)


def sweep(folder: Path) -> None:
    """Remove locks and temporary files that killed processes left in `folder`."""
    for name in filter(_LOCK.fullmatch, _names_in(folder / LOCKS)):
        remove_unheld(folder / LOCKS / name)
    places = folder / BUILDING
    for place in {match[1] for match in map(_PLACE.fullmatch, _names_in(places)) if match}:
        with suppress(OSError), key_lock(places / f"{place}.lock", wait=False):
            shutil.rmtree(places / place, ignore_errors=True)
    for at, _, _ in os.walk(folder):
        remove_left(Path(at))


def _names_in(folder: Path) -> list[str]:
    """Names in one of our folders; none if it is missing or a link."""
    with suppress(OSError):
        return [] if folder.is_symlink() else os.listdir(folder)
    return []


def prune(folder: Path, *, nbytes: int | None = None, days: float = MOST_DAYS) -> list[Entry]:
    """Remove entries unused for `days`, then the least recently used until at most `nbytes` are left; return them.

    Entries from the future, after a wrong clock, count as used now.
    """
    most = MOST_BYTES if nbytes is None else nbytes
    now, total, gone = time.time(), 0, []
    for entry in entries(folder):
        if entry.used > now + _DAY:
            with suppress(OSError):
                os.utime(entry.path, follow_symlinks=False)
        total += entry.nbytes
        if total > most or now - entry.used > days * _DAY:
            with suppress(OSError):
                entry.path.unlink()
                gone.append(entry)
    return gone
