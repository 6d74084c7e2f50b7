"""Cache entries with changed bytes or under another key: each reads as it was written, or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from random import Random
from typing import Any

from baracuda.runtime.cache.entries import EntryStore
from baracuda.runtime.host.cache import BuildCache

from ..draw import mutate
from ..verdict import Fault
from .target import Target

_BODIES = (b"", b"x", b"an entry" * 40)


class Entries(Target):
    """Entries of the compiler's cache and of the host device's."""

    name = "entries"
    pure = False

    def prepare(self) -> None:
        self.store, self.builds = EntryStore(self.folder / "store"), BuildCache(self.folder / "builds")

    def case(self, index: int, rng: Random) -> object:
        return rng.random()

    def judge(self, case: object) -> str:
        rng = Random(repr(case))
        body = rng.choice(_BODIES) + rng.randbytes(rng.randrange(80))
        return self._damaged_entry(rng, body) if rng.random() < 0.5 else self._damaged_build(rng, body)

    def _damaged_entry(self, rng: Random, body: bytes) -> str:
        key, other = (hashlib.sha256(rng.randbytes(8)).digest() for _ in range(2))
        self.store.put(key, body)
        self.store.put(other, b"another " + body)
        damage(self.store.folder, rng)
        for entry_key, expected in ((key, body), (other, b"another " + body)):
            if (data := self.store.get(entry_key)) not in (None, expected):
                raise Fault(f"the entry {expected!r} was read as {data!r}")
        return "" if self.store.get(key) == body else "damaged"

    def _damaged_build(self, rng: Random, body: bytes) -> str:
        names = [f"{hashlib.sha256(rng.randbytes(8)).hexdigest()[:40]}.so" for _ in range(2)]
        bodies = dict(zip(names, (b"one " + body, b"another " + body), strict=True))
        built: list[str] = []

        def get(name: str) -> bytes:
            def build(path: Path) -> None:
                built.append(name)
                path.write_bytes(bodies[name])

            return self.builds.get(name, build).read_bytes()

        for name in names:
            get(name)
        damage(self.builds.folder, rng)
        for name, expected in bodies.items():
            if not (data := get(name)).startswith(expected):
                raise Fault(f"the file {expected!r} was read as {data!r}")
        return "damaged" if len(built) > len(names) else ""


def damage(folder: Path, rng: Random) -> None:
    """Change the bytes of some files, or let one take another's place."""
    paths: list[Any] = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    for path in rng.sample(paths, min(len(paths), rng.randrange(4))):
        data = path.read_bytes()
        path.write_bytes(rng.choice(paths).read_bytes() if rng.random() < 0.4 else mutate.garble(data, rng))
