"""A pack: checked when it is opened, and each kernel when it is read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import PackError
from ..values import one_line
from .layout import FORMAT, KERNELS, MANIFEST, code_name, digest_of, facts_digest, line_start, lines_name
from .signature import verify


class PackedKernel(NamedTuple):
    """A line of the pack, and the code that it names."""

    facts: dict[str, Any]
    code: bytes


class Pack:
    """A folder that is only read. Whatever is not as its manifest says raises PackError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = self._manifest()
        self.archs: frozenset[str] = frozenset(self.facts["architectures"])
        self._checked: dict[str, bytes] = {}

    def _manifest(self) -> dict[str, Any]:
        try:
            facts = json.loads(manifest := self._read(MANIFEST))
            if (made := facts["format"]) != FORMAT:
                raise self._wrong(f"is of format {one_line(made, 20)}, this version reads {FORMAT}", "pack again")
            if facts["digest"] != facts_digest(facts):
                raise self._wrong(f"{MANIFEST} was changed after it was packed")
            if set(map(type, [*facts["architectures"], *facts["headers"].values(), *facts[KERNELS].values()])) - {str}:
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise self._wrong(f"{MANIFEST} cannot be read") from None
        verify(self.folder, manifest)
        return facts  # type: ignore[no-any-return] # of the types just seen

    def _lines(self, name: str) -> bytes:
        """The lines of a file, which is read once."""
        lines = self._checked.get(name)
        if lines is None:
            lines = self._read(name)
            if digest_of(lines) != self.facts[KERNELS][name]:
                raise self._wrong(f"{name} is not what {MANIFEST} says")
            self._checked[name] = lines
        return lines

    def _all_lines(self) -> Iterator[bytes]:
        return (line for name in sorted(self.facts[KERNELS]) for line in self._lines(name).splitlines())

    def get(self, key: str) -> PackedKernel | None:
        """The kernel of `key`, or None if the pack has none."""
        if (file := lines_name(key)) not in self.facts[KERNELS]:
            return None
        lines = self._lines(file)
        at = lines.find(line_start(key))
        if at < 0:
            return None
        facts = json.loads(lines[at : lines.index(b"\n", at)])
        stored = self._read(name := code_name(facts["code"], facts["arch"]))
        unpacker = zlib.decompressobj()
        with suppress(zlib.error):
            code = unpacker.decompress(stored, facts["bytes"])
            if unpacker.eof and not unpacker.unused_data and digest_of(code) == facts["code"]:
                return PackedKernel(facts, code)
        raise self._wrong(f"{name} is not what {file} says")

    def named(self, symbol: str) -> Iterator[dict[str, Any]]:
        """The facts of every kernel of this name."""
        name = f'"kernel": {json.dumps(symbol)}'.encode()
        return (json.loads(line) for line in self._all_lines() if name in line)

    def __len__(self) -> int:
        """The number of kernels."""
        return sum(1 for _ in self._all_lines())

    def __iter__(self) -> Iterator[str]:
        """Every key."""
        return (json.loads(line)["key"] for line in self._all_lines())

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise self._wrong(f"{name} cannot be read ({error.strerror})") from None

    def _wrong(self, problem: str, remedy: str = "install or pack it again, or take it away") -> PackError:
        return PackError(f"pack {one_line(self.folder)}: {problem}; {remedy}")
