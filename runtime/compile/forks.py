"""Critical sections that no fork may interrupt: in the child, a library's locks would stay held."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_entrance = threading.Lock()  # held while a fork waits and happens
_idle = threading.Condition()
_working = 0


@contextmanager
def unforked() -> Iterator[None]:
    """Make forks of this process wait for the end of the body, which must neither fork nor enter again."""
    global _working
    with _entrance, _idle:
        _working += 1
    try:
        yield
    finally:
        with _idle:
            _working -= 1
            _idle.notify_all()


def _before() -> None:
    _entrance.acquire()
    with _idle:
        _idle.wait_for(lambda: not _working)


os.register_at_fork(before=_before, after_in_parent=_entrance.release, after_in_child=_entrance.release)
