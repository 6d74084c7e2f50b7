"""A lock with a name, held by one thread of one process on this machine and released when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_held: set[int] = set()  # file descriptors


@contextlib.contextmanager
def key_lock(path: Path, *, wait: bool = True, mode: int = 0o600) -> Iterator[int]:
    """Hold the file `path` exclusively and give its descriptor; it is created on entry and removed on exit.

    Raises OSError before the body runs when the folder is missing, cannot be written or knows no locks, and without
    `wait` when somebody holds it.
    """
    holder = os.getpid()
    fd = _acquire(path, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB, mode)
    _held.add(fd)
    try:
        yield fd
    finally:
        if os.getpid() == holder:  # else this is a child, forked in the body; the lock is its parent's
            with contextlib.suppress(OSError):
                os.unlink(path)
            # Closing alone would not release it: a child forked meanwhile shares the open file.
            fcntl.flock(fd, fcntl.LOCK_UN)
            _held.discard(fd)
            os.close(fd)


def remove_unheld(path: Path) -> None:
    """Remove a file that is written or kept under `key_lock`, unless its holder lives."""
    with contextlib.suppress(OSError), key_lock(path, wait=False):
        pass


def _acquire(path: Path, how: int, mode: int) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(fd, how)
            if _is_at(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the previous holder removed this file while we waited for it


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _let_go() -> None:
    """In a forked child: close its copies, so that a lock ends with its holder and not with the holder's children."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
