"""The kernel table of a folder of generated files, read without importing them: they may be of another revision.

Of the row family alone: a row names all that its kernels are compiled from, while the kernels of other families depend
on the problem, and only their plans, executed, could tell which there are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import baracuda.runtime as rt
from baracuda.codegen.emit.templates import FAMILIES
from baracuda.runtime.families.row.source import row_source

_COMPARED = "row"
_CALLS: dict[str, Callable[..., Any]] = {
    "row_kernels": rt.row_kernels,
    "Tile": rt.Tile,
    "Argument": rt.Argument,
    "SourceFile": rt.SourceFile,
}
_NAMES = {"ElementKind": rt.ElementKind, "Direction": rt.Direction}


@dataclass(frozen=True, slots=True)
class Held:
    """A kernel of the folder and the arguments of its plan."""

    row: rt.Registered
    arguments: tuple[rt.Argument, ...]

    def sources(self) -> dict[str, rt.KernelSource]:
        """What it compiles from in each layout, with all optional tensors and every tensor's usual type."""
        given = self.row, self.arguments
        return {x: row_source(*given, x) for x in rt.RowPlan.LAYOUTS}


def read_table(folder: Path, package: str) -> Iterator[Held]:
    """Every row kernel that a module below `folder` registers, as `package` would; none when there is no folder.

    Raises Unsupported, with the place, for a module that registers kernels as no version known here does.
    """
    for path, calls in _modules(folder):
        tables = [node for node in calls if _called(node) == f"{_COMPARED}_kernels"]
        if not tables:
            continue
        package_of = f"{package}.{path.parent.name}"
        try:
            arguments = tuple(_value(node, package_of) for node in calls if _called(node) == "Argument")
            rows = [row for node in tables for row in _value(node, package_of)]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            where = f"{path.relative_to(folder)}:{tables[0].lineno}"
            raise rt.Unsupported(f"{where}: registers kernels in a way that is not known here ({error})") from None
        text = path.with_suffix(".cu").read_text(encoding="utf-8")
        for row in rows:
            yield Held(replace(row, source=replace(row.source, held=text)), arguments)


def other_ops(folder: Path) -> dict[str, str]:
    """The ops below `folder` whose kernels `read_table` leaves out, and the family of each."""
    others = {f"{family}_kernels": family for family in FAMILIES if family != _COMPARED}
    calls = [node for _, calls in _modules(folder) for node in calls if _called(node) in others]
    return {
        str(_value(keyword.value, "")): others[_called(node)]
        for node in calls
        for keyword in node.keywords
        if keyword.arg == "op"
    }


def _modules(folder: Path) -> Iterator[tuple[Path, list[ast.Call]]]:
    """Every generated module and the calls that it is made of."""
    for path in sorted(folder.glob("*/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield path, [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _value(node: ast.expr, package: str) -> Any:
    """What an expression of a generated module stands for: literals, and calls and names of the runtime."""
    match node:
        case ast.Name(id="__package__"):
            return package
        case ast.Tuple(elts=elements):
            return tuple(_value(e, package) for e in elements)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(key, package): _value(value, package) for key, value in pairs if key is not None}
        case ast.Attribute(value=ast.Attribute(attr=kind), attr=name):
            return getattr(_NAMES[kind], name)
        case ast.Call():
            given = {k.arg: _value(k.value, package) for k in node.keywords if k.arg is not None}
            if isinstance(tiles := given.get("tiles"), dict):  # as versions before 0.1 had them
                given["tiles"] = [((element,), tuple(map(str, of))) for element, of in tiles.items()]
            made = _CALLS[_called(node)](*(_value(a, package) for a in node.args), **given)
            return tuple(made) if _called(node) == "row_kernels" else made
    return ast.literal_eval(node)
