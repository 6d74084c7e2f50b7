"""`cache`: show, verify and prune the cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from baracuda.runtime.cache import folder as cache_folder
from baracuda.runtime.cache.folder import MOST_DAYS, Entry, entries, is_intact, sweep
from baracuda.runtime.cache.private import check_private
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.errors import InvalidProblem
from baracuda.runtime.values import one_line

from ..terminal import show_json, show_table

_SHOWN = 20  # damaged entries in a message
_MB = 1e6
_LARGEST = 1e12  # MB or days
_KINDS = ("answers", "audit", "cubin", "host")  # the folders of the cache; whatever else is beside them is not ours


@dataclass(frozen=True, slots=True)
class Kind:
    """The entries in one folder of the cache."""

    kind: str
    entries: int
    megabytes: float

    @classmethod
    def of(cls, folder: Path) -> Kind:
        stored = entries(folder)
        return cls(folder.name, len(stored), sum(entry.nbytes for entry in stored) / _MB)


def cache(what: str, *, remove: bool, megabytes: float | None, days: float | None, as_json: bool) -> bool:
    """Show, verify or prune; false if damage remains."""
    for option, value in (("--size", megabytes), ("--days", days)):
        if value is not None and not 0 <= value <= _LARGEST:
            raise InvalidProblem(f"{option} {value:g}: must be a number from 0 to {_LARGEST:g}")
    if what == "verify":
        return _verify(remove, as_json)
    if what == "prune":
        _prune(megabytes, days, as_json)
    else:
        _show(as_json)
    return True


def _show(as_json: bool) -> None:
    """Print the folder, and counts and sizes by kind."""
    kinds = [asdict(Kind.of(folder)) for folder in _folders()]
    if as_json:
        show_json({"folder": str(cache_root()), "kinds": kinds})
        return
    click.echo(f"{one_line(cache_root())}\n")
    show_table(kinds)


def _verify(remove: bool, as_json: bool) -> bool:
    """Check every entry and list damaged ones; with `remove`, delete them; true if none is left."""
    stored = [entry for folder in _folders() for entry in entries(folder)]
    damaged = [entry for entry in stored if not is_intact(entry.path)]
    for entry in damaged if remove else ():
        entry.path.unlink(missing_ok=True)
    if as_json:
        paths = [str(entry.path) for entry in damaged]
        show_json({"entries": len(stored), "damaged": paths, "removed": len(damaged) if remove else 0})
    else:
        _show_damaged(stored, damaged, remove)
    return remove or not damaged


def _prune(megabytes: float | None, days: float | None, as_json: bool) -> None:
    """Remove entries unused for `days`, the least recently used beyond the size of each kind, and leftovers of killed
    processes.
    """
    most = None if megabytes is None else int(megabytes * _MB)
    removed: list[Entry] = []
    for folder in _folders():
        sweep(folder)
        removed += cache_folder.prune(folder, nbytes=most, days=MOST_DAYS if days is None else days)
    freed = sum(entry.nbytes for entry in removed) / _MB
    if as_json:
        show_json({"removed": len(removed), "megabytes": freed})
    else:
        click.echo(f"{len(removed)} entries removed, {freed:.1f} MB")


def _folders() -> list[Path]:
    """The existing folders that are not links, one per kind; UnsafeCache if others may write to them."""
    root = cache_root()
    if not root.is_dir():
        return []
    folders = [path for kind in _KINDS if (path := root / kind).is_dir() and not path.is_symlink()]
    for folder in (root, *folders):
        check_private(folder, root)
    return folders


def _show_damaged(stored: Sequence[Entry], damaged: Sequence[Entry], removed: bool) -> None:
    for line in _some([one_line(entry.path) for entry in damaged]):
        click.echo(line)
    click.echo(f"{len(stored)} entries, {len(damaged)} damaged{' and removed' if removed and damaged else ''}")


def _some(lines: Sequence[str]) -> Iterable[str]:
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"... and {len(lines) - _SHOWN} more"
