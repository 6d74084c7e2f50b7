"""A folder of cache entries: looked up by key, checked when read, locked while one is made."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from .folder import CacheFolder, entries, log_once
from .shared import shared_entries

_ENTRIES = "entries"


class EntryStore:
    """Bytes by key. Disk trouble is not an error: it costs making the entry again and is logged once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = CacheFolder(folder)

    def get(self, key: bytes) -> bytes | None:
        """The entry of `key`, here or in what machines share; None if there is none or it is damaged."""
        try:
            body = self._files.read(_name(key))
        except OSError as error:
            log_once(f"cannot read the kernel cache {self.folder}: {error}")
            body = None
        if body is None and (behind := shared_entries(self.folder)):
            shared, name = behind
            body = shared.get(f"{name}/{_name(key)}")
            if body is not None:
                self._keep(key, body)
        return body

    def put(self, key: bytes, body: bytes) -> None:
        """Write the entry of `key`, here atomically, and to what machines share."""
        self._keep(key, body)
        if behind := shared_entries(self.folder):
            shared, name = behind
            shared.put(f"{name}/{_name(key)}", body)

    def _keep(self, key: bytes, body: bytes) -> None:
        try:
            self._files.write(_name(key), body)
        except OSError as error:
            log_once(
                f"cannot write the kernel cache {self.folder} ({error.strerror}); "
                "set BARACUDA_CACHE_DIR to another folder"
            )

    def __len__(self) -> int:
        """The number of entries."""
        return len(entries(self.folder / _ENTRIES))

    def lock(self, key: bytes) -> AbstractContextManager[None]:
        """Exclude all other threads and processes from `key`; where locks are unavailable, exclude none."""
        return self._files.lock(key.hex())


@cache
def entry_store(folder: Path) -> EntryStore:
    """The store of `folder`, one per process."""
    return EntryStore(folder)


def _name(key: bytes) -> str:
    return f"{_ENTRIES}/{key.hex()[:2]}/{key.hex()[2:]}"
