"""The disk cache of compiled kernels."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from ..cache.entries import EntryStore
from ..device import Cubin, Resources
from .provenance import KeyRecords, Parts


class CubinStore:
    """A folder of cubins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = KeyRecords(folder / "records")
        self._entries = EntryStore(folder)

    def get(self, key: bytes) -> Cubin | None:
        """The entry of `key`, with `seconds` 0; None if there is none or it is damaged."""
        body = self._entries.get(key)
        return None if body is None else _decode(body)

    def put(self, key: bytes, cubin: Cubin, parts: Parts) -> None:
        """Write the entry of `key` and the record of its key's inputs, each atomically."""
        self._entries.put(key, _encode(cubin))
        self.records.put(key, parts)

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def lock(self, key: bytes) -> AbstractContextManager[None]:
        """Exclude all other threads and processes from `key`; where locks are unavailable, exclude none."""
        return self._entries.lock(key)


@cache
def cubin_store(folder: Path) -> CubinStore:
    """The store of `folder`, one per process."""
    return CubinStore(folder)


# An entry is the ELF image, the resources as JSON, and the length of that JSON in 4 bytes. Tools that read ELF ignore
# what follows the image.


def _encode(cubin: Cubin) -> bytes:
    resources = json.dumps(asdict(replace(cubin.resources, seconds=0.0))).encode()
    return cubin.image + resources + len(resources).to_bytes(4, "little")


def _decode(body: bytes) -> Cubin | None:
    end = len(body) - 4
    start = end - int.from_bytes(body[end:], "little")
    try:
        return Cubin(body[:start], Resources(**json.loads(body[start:end])))
    except (ValueError, TypeError):
        return None
