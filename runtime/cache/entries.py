"""A folder of cache entries: found by key, checked when read, locked while one is being made."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from .folder import CacheFolder, entries, log_once

_ENTRIES = "entries"


class EntryStore:
    """Bytes by key. No disk trouble is an error here: it costs making the entry again and is logged once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = CacheFolder(folder)

    def get(self, key: bytes) -> bytes | None:
        """The entry of `key`; None when there is none or it does not check out."""
        try:
            return self._files.read(_name(key))
        except OSError as error:
            log_once(f"cannot read the kernel cache {self.folder}: {error}")
            return None

    def put(self, key: bytes, body: bytes) -> None:
        """Write the entry of `key`, replacing what is there; readers see the old or the new one, whole."""
        try:
            self._files.write(_name(key), body)
        except OSError as error:
            log_once(
                f"cannot write the kernel cache {self.folder} ({error.strerror}); "
                "set BARACUDA_CACHE_DIR to another folder"
            )

    def __len__(self) -> int:
        """How many entries there are."""
        return len(entries(self.folder / _ENTRIES))

    def lock(self, key: bytes) -> AbstractContextManager[None]:
        """Exclude every other thread and process from `key`; where no lock can be had, exclude nobody."""
        return self._files.lock(key.hex())


@cache
def entry_store(folder: Path) -> EntryStore:
    """The one store of `folder` in this process."""
    return EntryStore(folder)


def _name(key: bytes) -> str:
    return f"{_ENTRIES}/{key.hex()[:2]}/{key.hex()[2:]}"
