"""A cubin's sections: machine code, and a digest of everything that is executed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

_EXECUTED = (".text.", ".nv.constant", ".nv.global", ".nv.shared")
_NO_BITS = 8


class Section(NamedTuple):
    name: str
    size: int
    content: bytes  # empty when the file holds none


def sections(image: bytes) -> Iterator[Section]:
    """The sections of a 64-bit ELF file, in order."""
    (start,) = struct.unpack_from("<Q", image, 0x28)
    _, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, start + 64 * index) for index in range(count)]
    text = headers[names][4]
    for name, kind, _, _, offset, size in headers:
        end = image.index(b"\0", text + name)
        content = b"" if kind == _NO_BITS else image[offset : offset + size]
        yield Section(image[text + name : end].decode(), size, content)


def machine_code(image: bytes) -> bytes:
    """The instructions of a kernel and of the functions it calls."""
    return b"".join(s.content for s in sections(image) if s.name.startswith(".text."))


def code_digest(image: bytes) -> str:
    """A digest of instructions, constants and initial data, without names, notes and tool versions."""
    digest = hashlib.sha256(usedforsecurity=False)
    for section in sections(image):
        if section.name.startswith(_EXECUTED):
            kind = ".".join(section.name.split(".")[:3]) if section.name.startswith(".nv.") else ".text"
            digest.update(f"{kind}\0{section.size}\0".encode() + section.content)
    return digest.hexdigest()
