"""A lock with a name, held by one thread of one process on this machine and released when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def key_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path` exclusively; it is created on entry and removed on exit.

    Raises OSError before the body runs when the folder is missing, cannot be written or knows no locks.
    """
    fd = _acquire(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        # Closing alone would not release it: a child forked meanwhile shares the open file.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _acquire(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the previous holder removed this file while we waited for it


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
