"""Files built once for all processes, checked when used, in a cache folder or else a temporary one."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..cache.folder import SEAL_BYTES, CacheFolder
from ..errors import CompileError
from ..observe import log

_ROOM = 64 << 20  # bytes; a compilation with less left may fail for that alone
T = TypeVar("T")


def digest(*parts: object) -> str:
    """A key for `parts`, which must have exact reprs: strings, bytes, numbers, tuples of these."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


class BuildCache:
    """Built files under `folder`, named by the digest of their inputs.

    If `folder` cannot be written, a temporary one replaces it and is removed with this object. UnsafeCache if others
    may write to `folder`.
    """

    def __init__(self, folder: Path) -> None:
        self._files = CacheFolder(folder)
        self._temporary = False

    @property
    def folder(self) -> Path:
        return self._files.folder

    def get(self, name: str, build: Callable[[Path], None]) -> Path:
        """The file `name`, made by `build(path)` if missing or damaged; other processes wait for it."""
        used = self._files
        try:
            return _built(used, name, build)
        except OSError as error:
            if self._files is used:
                self._retreat(error)
        try:
            return _built(self._files, name, build)
        except OSError as error:
            raise CompileError(f"cannot build {name!r} in {self.folder}: {error.strerror or error}") from error

    def load(self, name: str, build: Callable[[Path], None], load: Callable[[Path], T], *, label: str) -> T:
        """The result of `load` on the file `name`; a file that it cannot load is rebuilt once.

        Messages call it `label`.
        """
        path = self.get(name, build)
        try:
            return load(path)
        except _UNLOADABLE:
            with suppress(OSError):
                path.unlink()
        path = self.get(name, build)
        try:
            return load(path)
        except _UNLOADABLE as error:
            raise CompileError(f"cannot load {label}: {error}") from error

    def _retreat(self, why: OSError) -> None:
        """Switch to a temporary folder."""
        if self._temporary:
            return
        log.warning("cannot use the host kernel cache %s (%s); kernels are kept for this process", self.folder, why)
        folder = Path(tempfile.mkdtemp(prefix="baracuda-host-")).resolve()
        weakref.finalize(self, _remove, folder, os.getpid())
        self._files, self._temporary = CacheFolder(folder), True


# Of a file that is whole: not a library at all, or one without what it should have.
_UNLOADABLE = (OSError, ValueError, AttributeError)


def content(path: Path) -> bytes:
    """The built file without its seal."""
    return path.read_bytes()[:-SEAL_BYTES]


def _built(files: CacheFolder, name: str, build: Callable[[Path], None]) -> Path:
    path = files.folder / name
    if files.read(name) is None:
        with files.lock(name):
            if files.read(name) is None:
                with files.building() as place:
                    _build(build, place / path.name)
                    files.write(name, (place / path.name).read_bytes())
    return path


def _build(build: Callable[[Path], None], target: Path) -> None:
    """Raises OSError for errors that a full disk may cause."""
    try:
        build(target)
    except CompileError:
        with (target.parent / "room").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM)
        raise


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder, unless in a forked child of its owner."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
