"""A sidecar file per cache entry with the inputs of its key, since a key is only a digest.

Written when an entry is compiled; never read on a hit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..cache.folder import CacheFolder, entries

Parts = Mapping[str, str]  # value by name

MAKER = "cuda-core"  # the part that counts only where all others are equal
_MOST, _KEPT = 8192, 4096  # records of about 2 kB; above the one, the oldest go until the other is left


class KeyRecords:
    """A folder of records. Disk trouble is not an error; the record is missing then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = CacheFolder(folder)
        self._thinned = False

    def put(self, key: bytes, parts: Parts) -> None:
        """Write the record of `key` atomically."""
        with suppress(OSError):
            if not self._thinned:
                self._thin_out()
            self._files.write(key.hex(), json.dumps(dict(parts)).encode())

    def get(self, key: bytes) -> Parts | None:
        """The record of `key`; None if there is none or it cannot be read."""
        return self._read(key.hex())

    def newest_first(self) -> Iterator[Parts]:
        """Every readable record."""
        for entry in entries(self.folder):
            if (parts := self._read(entry.path.name)) is not None:
                yield parts

    def __len__(self) -> int:
        return len(entries(self.folder))

    def _thin_out(self) -> None:
        self._thinned = True
        records = entries(self.folder)
        for record in records[_KEPT:] if len(records) > _MOST else ():
            record.path.unlink(missing_ok=True)

    def _read(self, name: str) -> Parts | None:
        try:
            body = self._files.read(name, use=False)
            parts = None if body is None else json.loads(body)
        except (OSError, ValueError):
            return None
        is_valid = isinstance(parts, dict) and all(isinstance(value, str) for value in parts.values())
        return parts if is_valid else None
