"""A cubin's sections: machine code, and a digest of everything that is executed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

_EXECUTED = (".text.", ".nv.constant", ".nv.shared")
_ADDRESSES = ".nv.constant4"
_NO_BITS, _OBJECT = 8, 1


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


def code_digest(image: bytes, unread: Container[str] = ()) -> str:
    """A digest of instructions, constants and initial data, without names, notes and tool versions.

    The variables called `unread` and the table of all variables' addresses do not count.
    """
    digest = hashlib.sha256(usedforsecurity=False)
    every = list(sections(image))
    for index, section in enumerate(every):
        if section.name.startswith(".nv.global"):
            contents = [part for name, part in _variables(every, index) if name not in unread]
        elif section.name.startswith(_EXECUTED) and section.name != _ADDRESSES:
            contents = [section.content]
        else:
            continue
        kind = ".".join(section.name.split(".")[:3]) if section.name.startswith(".nv.") else ".text"
        for content in contents:
            digest.update(f"{kind}\0{len(content) or section.size}\0".encode() + content)
    return digest.hexdigest()


def _variables(every: Sequence[Section], index: int) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each variable in the section of that index, by address."""
    table, names = (next(s.content for s in every if s.name == name) for name in (".symtab", ".strtab"))
    symbols = [symbol for symbol in struct.iter_unpack("<IBBHQQ", table) if symbol[1] & 15 == _OBJECT]
    for name, _, _, of, address, size in sorted(symbols, key=lambda symbol: symbol[4]):
        if of == index:
            content = every[index].content[address : address + size] or b"\0" * size
            yield names[name : names.index(b"\0", name)].decode(), content
