"""Folders whose files are executed: created so that nobody else can write there, and refused if somebody else can."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import UnsafeCache
from ..values import one_line

SHARED = "BARACUDA_SHARED_CACHE"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # that a path may pass, as in the kernel


def shared() -> bool:
    """Whether BARACUDA_SHARED_CACHE=1: then modes follow the umask and owners are not checked."""
    return os.environ.get(SHARED) == "1"


def make_private(folder: Path, top: Path) -> None:
    """Create `folder` and missing parents for this user alone, and check what existed.

    Raises UnsafeCache for a folder, from `top` down, that others may change or replace; OSError if it cannot be
    created.
    """
    if shared():
        folder.mkdir(parents=True, exist_ok=True)
        return
    if not folder.is_dir():
        _check_way(folder)
        for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
            missing.chmod(0o700)  # the umask took its share
    check_private(folder, top)


def check_private(folder: Path, top: Path) -> None:
    """Raise UnsafeCache as `make_private` does, and FileNotFoundError if the folder is missing."""
    if shared():
        return
    _check_way(folder)
    current, last = os.fspath(folder), os.fspath(top)
    while True:
        _check_own(current, os.stat(current))
        if current == last or len(current) <= len(last):
            return
        current = os.path.dirname(current)


def is_private(status: os.stat_result) -> bool:
    """Whether only this user or root can have written the file."""
    return shared() or (status.st_uid in _trusted() and not status.st_mode & _OTHERS)


def _trusted() -> tuple[int, int]:
    return 0, os.geteuid()


def _check_own(folder: str, status: os.stat_result) -> None:
    if status.st_uid not in _trusted():
        raise _unsafe(folder, f"belongs to user {status.st_uid}, needs {os.geteuid()}", f"chown -R {os.geteuid()}")
    if status.st_mode & _OTHERS:
        raise _unsafe(folder, f"may be written by others (mode {stat.S_IMODE(status.st_mode):o})", "chmod -R go-w")


def _check_way(folder: Path) -> None:
    """Refuse a path on which any user could replace `folder`."""
    for at, status in _way(os.fspath(folder.absolute())):
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in _trusted():
            raise _unsafe(at, f"is a link of user {status.st_uid}", "remove")
        writable = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if stat.S_ISDIR(status.st_mode) and writable:
            raise _unsafe(at, f"may be written by all (mode {stat.S_IMODE(status.st_mode):o})", "chmod o-w")


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Each existing folder and symbolic link that opening `path` passes."""
    at, links, left = "", 0, path.split("/")[:0:-1]
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        at = os.path.dirname(at) if name == ".." else f"{at}/{name}"
        try:
            status = os.lstat(at or "/")
        except FileNotFoundError:
            return
        yield at or "/", status
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(at)
            left += reversed(target.split("/"))
            at, links = "" if target.startswith("/") else os.path.dirname(at), links + 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _unsafe(folder: str, problem: str, remedy: str) -> UnsafeCache:
    folder = one_line(folder)
    return UnsafeCache(
        f"cache folder {folder} {problem}, so what is in it may be anybody's; if it is yours, {remedy} {folder}; "
        f"or set BARACUDA_CACHE_DIR to a folder of your own, or {SHARED}=1 to trust all who may write there"
    )
