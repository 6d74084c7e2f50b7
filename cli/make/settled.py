"""What `generate` and `check` remember: three counts and two digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from baracuda.codegen.emit.output import Changes, compare
from baracuda.codegen.spec.language import FILE

from .schema import start_of

_LARGEST = 64 << 20  # bytes of generated files that are looked at again; ours have a few


class Remembered(NamedTuple):
    """For a folder of specs: counts of ops, audited and listed kernels, digests of its generated files and schema."""

    ops: int
    kernels: int
    listed: int
    files: str
    schema: str

    @classmethod
    def read(cls, answer: object) -> Remembered | None:
        """The remembered answer, or None."""
        match answer:
            case [int(ops), int(kernels), int(listed), str(files), str(schema)]:
                return cls(ops, kernels, listed, files, schema)
        return None

    @classmethod
    def of(
        cls, ops: int, kernels: int, listed: int, files: Mapping[str, str], specs: Path, *, renewed: bool
    ) -> Remembered:
        """If the schema is still to be `renewed`, its digest matches no file."""
        return cls(ops, kernels, listed, _digest_of(files), "" if renewed else _schema_of(specs))

    def changes(self, specs: Path, out: Path) -> Changes | None:
        """No changes if `out` holds exactly those files; None if that is unknown."""
        present = compare({}, out).removed
        if sum((out / path).lstat().st_size for path in present) > _LARGEST:
            return None
        contents = {path: (out / path).read_text(encoding="utf-8", errors="replace") for path in present}
        if (_digest_of(contents), _schema_of(specs)) != (self.files, self.schema):
            return None
        return Changes((), (), tuple(sorted(present)))


def _digest_of(files: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(files.items())).encode(errors="replace"), usedforsecurity=False).hexdigest()


def _schema_of(specs: Path) -> str:
    content = b""
    with suppress(OSError):
        content = start_of(specs / FILE)
    return hashlib.sha256(content, usedforsecurity=False).hexdigest()
