"""Members of a possibly untrusted .zip file: sizes are checked before unpacking."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from baracuda.runtime import InvalidProblem

LARGEST = 128 << 20  # bytes of a file, and of the numbers in it
_NAMES = 1 << 20  # bytes of the directory at its end
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # which Python unpacks no further than it is asked to
_END, _END_64 = struct.Struct("<4s8x2L2x"), 20  # of the directory, and bytes of what may be before it in large files


def check_file(path: Path) -> None:
    """Raise InvalidProblem for a file that is larger or has more members than one of ours."""
    size = path.stat().st_size
    if size > LARGEST:
        raise InvalidProblem(f"has {size} bytes; a bundle has {LARGEST} at most")
    with path.open("rb") as file:
        file.seek(max(0, size - _END.size - _END_64))
        end = file.read()
    mark, names, _ = _END.unpack(end[-_END.size :].rjust(_END.size))
    if mark != b"PK\x05\x06" or end.startswith(b"PK\x06\x07"):  # a comment, or 64-bit sizes
        raise InvalidProblem("is no bundle, or a damaged one (does not end as a small .zip file without comment)")
    if names > _NAMES:
        raise InvalidProblem(f"has {names} bytes of names; a bundle has {_NAMES} at most")


def member(file: zipfile.ZipFile, name: str, most: int = LARGEST) -> bytes:
    """The contents of a member; InvalidProblem for more than `most` bytes, or another size than declared."""
    info = file.getinfo(name)
    if info.compress_type not in _METHODS:
        raise InvalidProblem(f"has {name} compressed by another method than deflate; write it with baracuda-gen")
    if info.file_size > most:
        raise InvalidProblem(f"has {info.file_size} bytes of {name}; a bundle has {most} at most")
    with file.open(info) as stream:
        data = stream.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise InvalidProblem(f"has {len(data)} bytes of {name}, and declares {info.file_size}")
    return data
