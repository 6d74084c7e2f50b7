"""The definitions that a spec may name as its oracle, found without importing a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "checking" / "oracles" / "references"


@cache
def definitions() -> Mapping[str, Mapping[str, bool]]:
    """Of each module of definitions that is installed, those in it, and whether one has values of its own."""
    modules = sorted(path for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    return {path.stem: dict(_definitions(ast.parse(path.read_text(encoding="utf-8")))) for path in modules}


def _definitions(module: ast.Module) -> Iterator[tuple[str, bool]]:
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="Definition")) as call):
                yield name, any(keyword.arg == "values" for keyword in call.keywords)
