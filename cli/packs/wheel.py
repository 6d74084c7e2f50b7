"""A wheel of a pack: data and an entry point, the same bytes each time."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

from baracuda.runtime import InvalidProblem
from baracuda.runtime.cache.publish import publish
from baracuda.runtime.packs.layout import ENTRY_POINTS

from .files import own_version

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*")
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # of every file, whenever it was made
_MODE = 0o100644 << 16


def module_of(name: str) -> str:
    """The package that holds the files of the distribution `name`. Raises InvalidProblem for what is no such name."""
    if not _NAME.fullmatch(name):
        raise InvalidProblem(f"{name!r} is no name of a distribution; write letters, digits and single hyphens")
    return name.lower().replace("-", "_")


def write_wheel(folder: Path, name: str, files: Mapping[str, bytes], licence: str) -> Path:
    """Write the wheel of the distribution `name`, which needs this version of baracuda-gen, into `folder`."""
    module, own = module_of(name), own_version()
    info = f"{module}-{own}.dist-info"
    contents = {f"{module}/__init__.py": b"", **{f"{module}/{path}": content for path, content in files.items()}}
    contents[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {own}\nSummary: Compiled kernels for baracuda-gen\n"
        f"License-Expression: {licence}\nRequires-Dist: baracuda-gen=={own}\n"
    ).encode()
    contents[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: baracuda-gen\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    contents[f"{info}/entry_points.txt"] = f"[{ENTRY_POINTS}]\n{name} = {module}\n".encode()
    record = "".join([f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in contents.items()])
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    file = folder / f"{module}-{own}-py3-none-any.whl"
    publish(file, _zipped(contents))
    return file


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(path, _EARLIEST)
            entry.external_attr, entry.create_system = _MODE, 3
            file.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return archive.getvalue()
