"""Specs in, files out: deterministic, atomic, written only when changed, leaving other files alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
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
            wrong.append(item.source.said_of_line(("program",), error.number, str(error)))
    if wrong:
        raise SpecError("\n".join(wrong))
    return ops


class Texts(Mapping[str, str]):
    """Every generated file by its path below the output folder, including packages' `__init__.py`.

    An op's files are rendered when the first of them is asked for. Raises SpecError for what templates make wrong.
    """

    def __init__(self, ops: Iterable[Op], templates: tuple[Path, ...] = ()) -> None:
        self._ops = sorted(ops, key=lambda op: (op.category, op.name))
        self._by_path: dict[str, Op] = {}
        for op in self._ops:
            if (path := f"{op.category}/{op.name}") in self._by_path:
                raise SpecError(f"{path}.cu: written by two specs; rename one of the ops")
            self._by_path[path] = op
        self._envs, self._is_ours = environments((*templates, TEMPLATES)), not templates
        self._rendered: dict[str, dict[str, str]] = {}  # by op

    def __getitem__(self, path: str) -> str:
        op = self._by_path.get(path.rpartition(".")[0])
        return self._all[path] if op is None else self._of(op)[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def _of(self, op: Op) -> dict[str, str]:
        if op.name not in self._rendered:
            texts = render(self._envs, op)
            for path, text in texts.items():
                if path.endswith(".py") and self._is_ours:  # others' templates may say more
                    check_plan(text, op)
            self._rendered[op.name] = texts
        return self._rendered[op.name]

    @cached_property
    def _all(self) -> dict[str, str]:
        files: dict[str, str] = {}
        for op in self._ops:
            files |= self._of(op)
        for category in sorted({op.category for op in self._ops}):
            modules = [op.name for op in self._ops if op.category == category]
            listed = laid_out(tuple(map(str, modules)), 0, len("__all__ = "))
            doc = f"{MARK}: plans of category {category}; do not edit."
            files[f"{category}/__init__.py"] = f'"""{doc}"""\n\n__all__ = {listed}\n'
        functions = [function_of(op) for op in sorted(self._ops, key=lambda op: op.name)]
        stub = self._envs["pyi"].get_template("functions.pyi.jinja").render(functions=functions, mark=Text(MARK))
        check_stub(stub)
        files["_functions.pyi"] = stub
        files["__init__.py"] = _index(self._ops)
        files["py.typed"] = f"{MARK}. Do not edit.\n"  # checkers ask whether it is there, and for no more
        files[MANIFEST] = manifest_of(files)
        return files


def texts(ops: Iterable[Op], templates: tuple[Path, ...] = ()) -> dict[str, str]:
    """All of `Texts`."""
    return dict(Texts(ops, templates))


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
