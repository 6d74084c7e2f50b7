"""Atomic writes: a reader sees the old text or the new one, never a part."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .lock import key_lock, remove_unheld

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.baracuda-tmp", re.DOTALL)


def publish(path: Path, content: str | bytes, *, mode: int | None = 0o644, create: bool = False) -> None:
    """Write through a temporary file beside `path`. Raises OSError that names `path`.

    With `create`, FileExistsError if something is there already. A `mode` of None is the umask's. Temporary files of
    killed writers of `path` are removed.
    """
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path.parent, path.name)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.baracuda-tmp")
    try:
        with _opened(temporary, 0o666 if mode is None else mode) as file:
            if mode is not None:
                os.fchmod(file, mode)
            _write(file, data)
            if create:
                _claim(temporary, path)
            os.replace(temporary, path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # of a full disk it names no file


def _claim(temporary: Path, path: Path) -> None:
    """Give `path` the contents of `temporary` if it does not exist; without hard links, replace only an empty file."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def remove_left(folder: Path, name: str | None = None) -> None:
    """Remove temporary files of `name`, or of every name, in `folder` whose writers are gone."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            match = _TEMPORARY.fullmatch(entry.name)
            if match and name in (None, match[1]) and entry.is_file(follow_symlinks=False):
                remove_unheld(Path(entry.path))


@contextmanager
def _opened(path: Path, mode: int) -> Iterator[int]:
    """A file that is removed at the end unless renamed, and locked where locks are available."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(key_lock(path, mode=mode))
        except OSError:
            stack.callback(path.unlink, missing_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, mode)
            stack.callback(os.close, file)
        yield file


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    os.fsync(file)
