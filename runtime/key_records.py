"""Of what the keys in a cache were made, a file beside for each entry: a key is a digest and cannot tell.

Whoever compiles writes one; nobody who finds an entry looks at any.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from .publish import publish

Parts = Mapping[str, str]  # value by name

MAKER = "cuda-core"  # the part that counts only where all others are equal
_MOST, _KEPT = 8192, 4096  # records of about 2 kB; above the one, the oldest go until the other is left


class KeyRecords:
    """A folder of records; trouble with the disk is no error, a record is missing then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, key: bytes, parts: Parts) -> None:
        """Write the record of `key`; readers see all of it or nothing."""
        with suppress(OSError):
            self._thin_out  # noqa: B018  once
            publish(self.folder / key.hex(), json.dumps(dict(parts)))

    def get(self, key: bytes) -> Parts | None:
        """The record of `key`, None when there is none or it cannot be read."""
        return _read(self.folder / key.hex())

    def newest_first(self) -> Iterator[Parts]:
        """Every record that can be read."""
        for path in self._paths():
            if (parts := _read(path)) is not None:
                yield parts

    def __len__(self) -> int:
        return len(self._paths())

    def _paths(self) -> list[Path]:
        found: list[tuple[float, str]] = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process thins out
                    if not entry.name.startswith("."):
                        found.append((entry.stat().st_mtime, entry.path))
        return [Path(path) for _, path in sorted(found, reverse=True)]

    @cached_property
    def _thin_out(self) -> None:
        paths = self._paths()
        for path in paths[_KEPT:] if len(paths) > _MOST else ():
            path.unlink(missing_ok=True)


def _read(path: Path) -> Parts | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
