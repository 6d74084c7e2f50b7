"""The definitions that a spec may name as its oracle, found without importing a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from baracuda.runtime import SpecError

from ...spec.yaml_text import display_path, read_text

FOLDER = Path(__file__).resolve().parents[3] / "checking" / "oracles" / "references"


@cache
def definitions() -> Mapping[str, Mapping[str, bool]]:
    """Of each module of definitions that is installed, those in it, and whether one has values of its own."""
    return {path.stem: definitions_in(path) for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("_")}


def definitions_in(path: Path) -> Mapping[str, bool]:
    """Of a module those definitions; SpecError for a file that is no Python."""
    try:
        return dict(_definitions(ast.parse(read_text(path))))
    except SyntaxError as error:
        raise SpecError(f"{display_path(path)}:{error.lineno or 1}: this is no Python: {error.msg}") from None


def _definitions(module: ast.Module) -> Iterator[tuple[str, bool]]:
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="Definition")) as call):
                yield name, len(call.args) > 1 or any(keyword.arg == "values" for keyword in call.keywords)
