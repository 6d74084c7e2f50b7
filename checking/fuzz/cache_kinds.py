"""Cache entries of each kind, for fault injection."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

from baracuda.runtime.cache.entries import EntryStore
from baracuda.runtime.cache.folder import CacheFolder
from baracuda.runtime.compile.provenance import KeyRecords
from baracuda.runtime.host.cache import BuildCache, content

Read = Callable[[], bytes | None]


@dataclass(frozen=True)
class CachedEntry:
    """A cache entry: its file, its contents, and how it is read."""

    path: Path
    body: bytes
    read: Read

    def is_right(self, *, gone: bool = True) -> bool:
        """Whether it reads as it was written or, with `gone`, not at all."""
        data = self.read()
        return data == self.body or (gone and data is None)


def filled(root: Path, rng: Random, each: int = 6) -> dict[str, list[CachedEntry]]:
    """Some entries of each kind, by kind."""
    return {kind: [make(root, rng) for _ in range(each)] for kind, make in KINDS.items()}


def kernel(kind: str) -> Callable[[Path, Random], CachedEntry]:
    def make(root: Path, rng: Random) -> CachedEntry:
        key, body, store = rng.randbytes(32), rng.randbytes(rng.randrange(1, 500)), EntryStore(root / kind)
        store.put(key, body)
        path = root / kind / "entries" / key.hex()[:2] / key.hex()[2:]
        return CachedEntry(path, body, lambda: store.get(key))

    return make


def record(root: Path, rng: Random) -> CachedEntry:
    key, parts, records = rng.randbytes(32), {"kernel": rng.randbytes(20).hex()}, KeyRecords(root / "cubin/records")
    records.put(key, parts)

    def read() -> bytes | None:
        stored = records.get(key)
        return None if stored is None else json.dumps(dict(stored)).encode()

    return CachedEntry(root / "cubin/records" / key.hex(), json.dumps(parts).encode(), read)


def _file(kind: str) -> Callable[[Path, Random], CachedEntry]:
    def make(root: Path, rng: Random) -> CachedEntry:
        name, body, files = sha256(rng.randbytes(8)).hexdigest(), rng.randbytes(300), CacheFolder(root / kind)
        files.write(name, body)
        return CachedEntry(root / kind / name, body, lambda: files.read(name))

    return make


def _library(root: Path, rng: Random) -> CachedEntry:
    """A library of the host device, read without building a damaged one again."""
    name, body, builds = f"{rng.randbytes(20).hex()}.so", rng.randbytes(300), BuildCache(root / "host")

    def read() -> bytes | None:
        return content(root / "host" / name) if CacheFolder(root / "host").read(name) is not None else None

    return CachedEntry(builds.get(name, lambda target: _put(target, body)), body, read)


def _put(target: Path, body: bytes) -> None:
    target.write_bytes(body)


KINDS: dict[str, Callable[[Path, Random], CachedEntry]] = {
    "cubin": kernel("cubin"),
    "audit": kernel("audit"),
    "record": record,
    "host": _library,
    "answer": _file("answers"),
}
