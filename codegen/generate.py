"""Specs in, files out: byte-identical, written only when changed, atomically, and nothing of anybody else's touched."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from baracuda.runtime import SpecError
from baracuda.runtime.tuned import MARK

from .load import Loaded, load_folder
from .lower import lower
from .model import Op
from .program import ProgramError
from .publish import publish
from .render import environment, render

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
# A line that opens with the mark, as a generated file has; text that only mentions it has none.
_MARKED = re.compile(rf'^(// |"""| ")?{MARK}\b', re.MULTILINE)


@dataclass(frozen=True)
class Changes:
    """What writing did, or would do, to the output folder; paths are relative to it."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def any(self) -> bool:
        return bool(self.written or self.removed)


def lower_all(loaded: Iterable[Loaded]) -> list[Op]:
    """Lower every spec; raise one SpecError for all the programs that no family can schedule."""
    ops, wrong = [], []
    for one in loaded:
        try:
            ops.append(replace(lower(one.spec, one.shown), tuned=tuple(one.tuned.items())))
        except ProgramError as error:
            where = one.source.place(("program",)).rpartition(":")[0]
            line = one.source.text_line(("program",)) + max(error.number, 1) - 1
            wrong.append(f"{where}:{line}: {error}")
    if wrong:
        raise SpecError("\n".join(wrong))
    return ops


def texts(ops: Iterable[Op], templates: tuple[Path, ...] = ()) -> dict[str, str]:
    """Return every generated file by its path below the output folder, packages' `__init__.py` included."""
    env = environment((*templates, TEMPLATES))
    ops = sorted(ops, key=lambda op: (op.category, op.name))
    files: dict[str, str] = {}
    for op in ops:
        for path, text in render(env, op).items():
            if path in files:
                raise SpecError(f"{path}: written by two specs; rename one of the ops")
            files[path] = text
    for category in sorted({op.category for op in ops}):
        modules = [op.name for op in ops if op.category == category]
        files[f"{category}/__init__.py"] = _package(f"Generated plans of category {category}.", modules)
    files["__init__.py"] = _index(ops)
    return files


def _package(doc: str, modules: list[str]) -> str:
    listed = "".join(f"    {name!r},\n".replace("'", '"') for name in modules)
    return f'"""{doc}\n\n{MARK}. Do not edit.\n"""\n\n__all__ = [\n{listed}]\n'


def _index(ops: list[Op]) -> str:
    rows = {name: f"{op.category}.{op.name}" for op in ops for name in (*op.plans, op.descriptor)}
    listed = "".join(f'    "{name}": "{module}",\n' for name, module in sorted(rows.items()))
    return _INDEX.format(mark=MARK, rows=listed)


_INDEX = '''"""Generated plans, imported when first used.

{mark}. Do not edit.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

MODULES = {{
{rows}}}


def __getattr__(name: str) -> Any:
    """Import the module of a plan or descriptor, as ``from ... import`` does."""
    if name not in MODULES:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    return getattr(import_module(f".{{MODULES[name]}}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *MODULES])


def import_all() -> None:
    """Import every plan, so that the registry knows every kernel."""
    for module in sorted(set(MODULES.values())):
        import_module(f".{{module}}", __name__)
'''


def compare(files: dict[str, str], out: Path) -> Changes:
    """Say what `write` would do."""
    kept = [path for path, text in files.items() if _read(out / path) == text]
    written = [path for path in files if path not in kept]
    for path in written:
        there = _read(out / path)
        if there is not None and there != "" and not _MARKED.search(there):
            raise SpecError(f"{out / path}: was not generated, so it is not overwritten; move it away")
    orphans = [p.relative_to(out).as_posix() for p in sorted(out.rglob("*")) if _is_orphan(p, files, out)]
    return Changes(tuple(sorted(written)), tuple(orphans), tuple(sorted(kept)))


def write(files: dict[str, str], out: Path) -> Changes:
    """Make `out` hold exactly `files` among its generated ones; other files stay as they are."""
    changes = compare(files, out)
    for path in changes.written:
        publish(out / path, files[path])
    for path in changes.removed:
        (out / path).unlink(missing_ok=True)
        for folder in (out / path).parents:
            if folder == out or any(p.name != "__pycache__" for p in folder.iterdir()):
                break
            _remove_empty(folder)
    return changes


def _remove_empty(folder: Path) -> None:
    for cached in folder.glob("__pycache__/*.pyc"):
        cached.unlink()
    for inner in (folder / "__pycache__", folder):
        if inner.exists():
            inner.rmdir()


def _read(path: Path) -> str | None:
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    return "a folder, say" if path.exists() or path.is_symlink() else None


def _is_orphan(path: Path, files: dict[str, str], out: Path) -> bool:
    if path.suffix not in (".cu", ".py", ".json") or path.relative_to(out).as_posix() in files or not path.is_file():
        return False
    return bool(_MARKED.search(path.read_text(encoding="utf-8", errors="replace")[:20_000]))


def generate(specs: Path, out: Path, templates: tuple[Path, ...] = (), *, dry_run: bool = False) -> Changes:
    """Generate every spec below `specs` into `out`; with `dry_run`, only say what would change."""
    files = texts(lower_all(load_folder(specs).values()), templates)
    return compare(files, out) if dry_run else write(files, out)
