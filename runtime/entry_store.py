"""A folder of cache entries: found by key, checked when read, locked while one is being made."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from .key_lock import key_lock

if TYPE_CHECKING:
    from cuda.core.utils import FileStreamProgramCache

log = logging.getLogger(__name__)
_MAX_BYTES = 1 << 30  # least recently read entries go first; a light kernel takes about 6 kB
_DIGEST_BYTES = 32


class EntryStore:
    """Bytes by key. No disk trouble is an error here: it costs making the entry again and is logged once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: bytes) -> bytes | None:
        """The entry of `key`; None when there is none or it does not check out."""
        try:
            data = None if self._reader is None else self._reader.get(key)
        except OSError as error:
            _log_once(f"cannot read the kernel cache {self.folder}: {error}")
            return None
        if data is None:
            return None
        body = bytes(data[:-_DIGEST_BYTES])
        if _digest(key, body) != data[-_DIGEST_BYTES:]:
            _log_once(f"kernel cache entry {key.hex()} in {self.folder} is damaged; it is made again")
            return None
        return body

    def put(self, key: bytes, body: bytes) -> None:
        """Write the entry of `key`, replacing what is there; readers see the old or the new one, whole."""
        if self._reader is None:
            return
        try:
            self._writer[key] = body + _digest(key, body)
        except OSError as error:
            _log_once(_unwritable(self.folder, error))

    def __len__(self) -> int:
        """How many entries there are."""
        return 0 if self._reader is None else len(self._reader)

    @contextmanager
    def lock(self, key: bytes) -> Iterator[None]:
        """Exclude every other thread and process from `key`; where no lock can be had, exclude nobody."""
        with ExitStack() as held:
            if self._reader is not None:
                try:
                    (self.folder / "locks").mkdir(parents=True, exist_ok=True)
                    held.enter_context(key_lock(self.folder / "locks" / key.hex()))
                except OSError as error:
                    _log_once(_unwritable(self.folder, error))
            yield

    @cached_property
    def _reader(self) -> FileStreamProgramCache | None:
        from cuda.core.utils import FileStreamProgramCache

        try:
            return FileStreamProgramCache(self.folder)
        except OSError as error:
            _log_once(_unwritable(self.folder, error))
            return None

    @cached_property
    def _writer(self) -> FileStreamProgramCache:
        # Opening with a size limit lists the whole folder, so only a process that compiles does it.
        from cuda.core.utils import FileStreamProgramCache

        return FileStreamProgramCache(self.folder, max_size_bytes=_MAX_BYTES)


@cache
def entry_store(folder: Path) -> EntryStore:
    """The one store of `folder` in this process."""
    return EntryStore(folder)


@cache
def _log_once(message: str) -> None:
    log.warning(message)


def _unwritable(folder: Path, error: OSError) -> str:
    return f"cannot write the kernel cache {folder} ({error.strerror}); set BARACUDA_CACHE_DIR to another folder"


def _digest(key: bytes, body: bytes) -> bytes:
    return hashlib.sha256(key + body, usedforsecurity=False).digest()
