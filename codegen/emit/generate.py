"""Specs in, files out: deterministic, atomic, written only when changed, leaving other files alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from baracuda.runtime import SpecError
from baracuda.runtime.plans.tuned import MARK

from ..lower.lower import lower
from ..lower.op import Op
from ..program import ProgramError
from ..spec.load import Loaded, load_folder
from ..text import Text, laid_out
from .functions import function_of
from .output import MANIFEST, Changes, compare, manifest_of, write
from .plan_tree import check_plan, check_stub
from .render import environments, render

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


def lower_all(loaded: Iterable[Loaded]) -> list[Op]:
    """Lower every spec; raise one SpecError for all programs that no family can schedule."""
    ops, wrong = [], []
    for item in loaded:
        try:
            ops.append(replace(lower(item.spec, item.display_path), tuned=tuple(item.tuned.items())))
        except ProgramError as error:
            file = item.source.place(("program",)).rpartition(":")[0]
            line = item.source.text_line(("program",)) + max(error.number, 1) - 1
            wrong.append(f"{file}:{line}: {error}")
    if wrong:
        raise SpecError("\n".join(wrong))
    return ops


def texts(ops: Iterable[Op], templates: tuple[Path, ...] = ()) -> dict[str, str]:
    """Every generated file by its path below the output folder, including packages' `__init__.py`."""
    envs = environments((*templates, TEMPLATES))
    ops = sorted(ops, key=lambda op: (op.category, op.name))
    files: dict[str, str] = {}
    for op in ops:
        for path, text in render(envs, op).items():
            if path.endswith(".py") and not templates:  # others' templates may say more
                check_plan(text, op)
            if path in files:
                raise SpecError(f"{path}: written by two specs; rename one of the ops")
            files[path] = text
    for category in sorted({op.category for op in ops}):
        modules = [op.name for op in ops if op.category == category]
        listed = laid_out(tuple(map(str, modules)), 0, len("__all__ = "))
        doc = f"{MARK}: plans of category {category}; do not edit."
        files[f"{category}/__init__.py"] = f'"""{doc}"""\n\n__all__ = {listed}\n'
    functions = [function_of(op) for op in sorted(ops, key=lambda op: op.name)]
    stub = envs["pyi"].get_template("functions.pyi.jinja").render(functions=functions, mark=Text(MARK))
    check_stub(stub)
    files["_functions.pyi"] = stub
    files["__init__.py"] = _index(ops)
    files["py.typed"] = f"{MARK}. Do not edit.\n"  # checkers ask whether it is there, and for no more
    files[MANIFEST] = manifest_of(files)
    return files


def _index(ops: list[Op]) -> str:
    rows = "".join(f'    "{op.category}.{op.name}": "{" ".join((op.descriptor, *op.plans))}",\n' for op in ops)
    imports = "".join(f"    from .{op.category}.{op.name} import *\n" for op in ops)
    return _INDEX.format(mark=MARK, rows=rows, imports=imports)


_INDEX = '''"""Generated plans, imported when first used.

{mark}. Do not edit.
"""
# ruff: noqa: F403

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

_CLASSES = {{
{rows}}}
MODULES = dict(sorted((name, module) for module, names in _CLASSES.items() for name in names.split()))

__all__ = [*MODULES, "MODULES", "import_all"]

if TYPE_CHECKING:
{imports}
else:

    def __getattr__(name: str) -> Any:
        """Import the module of a plan or descriptor, as ``from ... import`` does."""
        if name not in MODULES:
            raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
        return getattr(_import_module(f".{{MODULES[name]}}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *MODULES])


def import_all() -> None:
    """Import every plan, so that the registry knows every kernel."""
    for module in _CLASSES:
        _import_module(f".{{module}}", __name__)
'''


def generate(specs: Path, out: Path, templates: tuple[Path, ...] = (), *, dry_run: bool = False) -> Changes:
    """Generate every spec below `specs` into `out`; with `dry_run`, only report what would change."""
    files = texts(lower_all(load_folder(specs).values()), templates)
    return compare(files, out) if dry_run else write(files, out)
