"""A folder of built files, each made once for all processes, published atomically and checked when read."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from ..errors import CompileError
from ..key_lock import key_lock

log = logging.getLogger(__name__)
_DIGEST_BYTES = 32


def digest(*parts: object) -> str:
    """A key for `parts`, which must have exact reprs: strings, bytes, numbers, tuples of these."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


class BuildCache:
    """Built files under `folder`, named by the digest of all that went into them.

    Where `folder` cannot be written, a temporary one serves instead and goes with this object.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            log.warning("cannot create the host kernel cache %s: %s", folder, error)
        if not os.access(folder, os.W_OK | os.X_OK):
            folder = Path(tempfile.mkdtemp(prefix="baracuda-host-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.folder = folder

    def get(self, name: str, build: Callable[[Path], None]) -> Path:
        """The file `name`, made by `build(path)` if absent or damaged; other processes wait for it."""
        path = self.folder / name
        try:
            if not _is_intact(path):
                path.parent.mkdir(exist_ok=True)
                with key_lock(path.with_name(path.name + ".lock")):
                    if not _is_intact(path):
                        _publish(path, build)
        except OSError as error:
            raise CompileError(f"cannot build {str(path)!r}: {error}; set BARACUDA_CACHE_DIR") from error
        return path


def _publish(path: Path, build: Callable[[Path], None]) -> None:
    unfinished = path.with_name(path.name + ".tmp")  # under the lock it is ours, or left by a killed builder
    build(unfinished)
    content = unfinished.read_bytes()
    with unfinished.open("ab") as file:  # loaders and compilers ignore what follows the end of their data
        file.write(hashlib.sha256(content).digest())
    os.replace(unfinished, path)


def _is_intact(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-_DIGEST_BYTES]).digest() == content[-_DIGEST_BYTES:]
