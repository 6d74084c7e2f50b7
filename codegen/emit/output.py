"""The output folder: compared with what it should hold, and brought up to date.

A manifest lists the generated files. Only files that it names and that have our mark are ever removed, and nothing is
written or removed through a symbolic link or in another project's folder.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISREG

from baracuda.runtime import SpecError
from baracuda.runtime.cache.publish import publish
from baracuda.runtime.plans.tuned import MARK

PACKAGE = "baracuda.generated"  # of the plans that come with us
MANIFEST = "_manifest.json"
_SUFFIXES = (".cu", ".py", ".pyi", ".typed", ".json")
_READ = 1 << 20  # bytes of a file, among which is its mark; and of a list of files
_LONGEST = 1000  # characters of a path below the folder
# A line that opens with the mark, as a generated file has; text that only mentions it has none.
_MARKED = re.compile(rf'^(// |"""| ")?{MARK}\b', re.MULTILINE)


@dataclass(frozen=True)
class Changes:
    """What writing changed, or would change; paths are relative to the output folder."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def any(self) -> bool:
        return bool(self.written or self.removed)


def manifest_of(paths: Iterable[str]) -> str:
    """The manifest of a folder's generated files."""
    note = "the files that 'baracuda-gen generate' has written here, and may remove. Do not edit."
    files = textwrap.wrap(", ".join(map(json.dumps, sorted({*paths, MANIFEST}))), 118, break_on_hyphens=False)
    listed = "\n  ".join(files)
    return f"{{\n {json.dumps(MARK)}: {json.dumps(note)},\n \"files\": [\n  {listed}\n ]\n}}\n"


def compare(files: Mapping[str, str], out: Path) -> Changes:
    """What `write` would do; raises SpecError for what it must not."""
    _check_above(out)
    for path in files:
        _check_place(out, path)
    unchanged = [path for path, text in files.items() if _holds(out / path, text.encode())]
    written = sorted(files.keys() - unchanged)
    for path in written:
        if _kind_of(out / path) and not (_is_empty(out / path) or _is_marked(out / path)):
            raise SpecError(f"{out / path}: was not generated, so it is not overwritten; move it away")
    return Changes(tuple(written), tuple(_orphans(out, files)), tuple(sorted(unchanged)))


def write(files: Mapping[str, str], out: Path) -> Changes:
    """Make `out` hold exactly `files` among its generated ones; other files stay."""
    changes = compare(files, out)
    if not changes.any:
        return changes
    if MANIFEST in files:  # first, so that what is written then is known to be ours when this is interrupted
        _renew(out / MANIFEST, manifest_of({*_listed(out), *files}))
    for path in changes.written:
        if path != MANIFEST:
            publish(out / path, files[path])
    for path in changes.removed:
        (out / path).unlink(missing_ok=True)
    for folder in sorted({PurePosixPath(path).parent for path in changes.removed}, reverse=True):
        _remove_emptied(out, folder, {PurePosixPath(path).stem for path in changes.removed})
    if MANIFEST in files:
        _renew(out / MANIFEST, files[MANIFEST])
    return changes


def _renew(path: Path, text: str) -> None:
    if not _holds(path, text.encode()):
        publish(path, text)


def _orphans(out: Path, files: Collection[str]) -> list[str]:
    """Files that are listed, have our mark, and should no longer exist."""
    gone = sorted({*_listed(out), MANIFEST}.difference(files))
    return [path for path in gone if _wrong_place(out, path) is None and _is_marked(out / path)]


def _listed(out: Path) -> list[str]:
    """The files in the folder's manifest; none if it is missing or has another format."""
    path = out / MANIFEST
    if not _is_marked(path) or path.lstat().st_size > _READ:
        return []
    with suppress(ValueError, RecursionError, OSError):
        match json.loads(path.read_bytes()):
            case {"files": [*names]}:
                return [name for name in names if isinstance(name, str)]
    return []


def _check_above(out: Path) -> None:
    """Raise SpecError if `out` is inside another project's output folder."""
    resolved = out.resolve()
    for folder in resolved.parents:
        inside = f"{resolved.relative_to(folder).as_posix()}/"
        with suppress(OSError):  # a list that we may not read is not ours
            if any(path.startswith(inside) for path in _listed(folder)):
                raise SpecError(f"{out}: holds files that {folder / MANIFEST} lists; choose another folder for --out")


def _check_place(out: Path, path: str) -> None:
    if wrong := _wrong_place(out, path):
        raise SpecError(f"{out / path}: {wrong}")


def _wrong_place(out: Path, path: str) -> str | None:
    """Why no generated file of `out` can be at this path, or None."""
    if len(path) > _LONGEST:
        return "is no place of a generated file"
    parts = path.split("/")
    names = [part.removesuffix(PurePosixPath(path).suffix) if part == parts[-1] else part for part in parts]
    if not all(name.isidentifier() for name in names) or PurePosixPath(path).suffix not in _SUFFIXES:
        return "is no place of a generated file"
    for folder in list((out / path).parents)[: len(parts) - 1]:
        if (kind := _kind_of(folder)) and not S_ISDIR(kind):
            return f"{folder.name!r} is no folder but a file or a symbolic link; move it away"
        if _kind_of(folder / MANIFEST):
            return f"{folder.name!r} is the output folder of another project; rename the category"
    return None


def _kind_of(path: Path) -> int:
    """The mode of what is there, without following links; 0 for nothing and for impossible names."""
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _holds(path: Path, content: bytes) -> bool:
    return S_ISREG(_kind_of(path)) and path.stat().st_size == len(content) and path.read_bytes() == content


def _is_empty(path: Path) -> bool:
    return S_ISREG(_kind_of(path)) and path.stat().st_size == 0


def _is_marked(path: Path) -> bool:
    if not S_ISREG(_kind_of(path)):
        return False
    with path.open("rb") as file:
        return _MARKED.search(file.read(_READ).decode(errors="replace")) is not None


def _remove_emptied(out: Path, folder: PurePosixPath, modules: Collection[str]) -> None:
    """Remove folders below `out` that hold nothing but caches of removed modules."""
    for inner in (folder, *folder.parents):
        if inner == PurePosixPath() or not _kind_of(out / inner):
            return
        left, cached = list((out / inner).iterdir()), out / inner / "__pycache__"
        if left == [cached] and S_ISDIR(_kind_of(cached)):
            compiled = list(cached.iterdir())
            if not all(file.name.split(".")[0] in modules and file.suffix == ".pyc" for file in compiled):
                return
            for file in compiled:
                file.unlink()
            cached.rmdir()
        elif left:
            return
        (out / inner).rmdir()
