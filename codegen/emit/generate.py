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
from ..text import Text
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
        files[f"{category}/__init__.py"] = _package(f"Generated plans of category {category}.", modules)
    functions = [function_of(op) for op in sorted(ops, key=lambda op: op.name)]
    stub = envs["pyi"].get_template("functions.pyi.jinja").render(functions=functions, mark=Text(MARK))
    check_stub(stub)
    files["_functions.pyi"] = stub
    files["__init__.py"] = _index(ops)
    files["py.typed"] = f"{MARK}. Do not edit.\n"  # checkers ask whether it is there, and for no more
    files[MANIFEST] = manifest_of(files)
    return files


def _package(doc: str, modules: Iterable[str]) -> str:
    listed = "".join(f"    {name!r},\n".replace("'", '"') for name in modules)
    return f'"""{doc}\n\n{MARK}. Do not edit.\n"""\n\n__all__ = [\n{listed}]\n'


def _index(ops: list[Op]) -> str:
    rows = {name: f"{op.category}.{op.name}" for op in ops for name in (*op.plans, op.descriptor)}
    listed = "".join(f'    "{name}": "{module}",\n' for name, module in sorted(rows.items()))
    by_module = sorted((module, name) for name, module in rows.items())
    imports = "".join(f"    from .{module} import {name} as {name}\n" for module, name in by_module)
    return _INDEX.format(mark=MARK, rows=listed, imports=imports)


_INDEX = '''"""Generated plans, imported when first used.

{mark}. Do not edit.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

MODULES = {{
{rows}}}

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
    for module in sorted(set(MODULES.values())):
        _import_module(f".{{module}}", __name__)
'''


def generate(specs: Path, out: Path, templates: tuple[Path, ...] = (), *, dry_run: bool = False) -> Changes:
    """Generate every spec below `specs` into `out`; with `dry_run`, only report what would change."""
    files = texts(lower_all(load_folder(specs).values()), templates)
    return compare(files, out) if dry_run else write(files, out)
