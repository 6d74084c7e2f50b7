"""Invariant: what serves a family is in its folders, and nothing else asks which family something is of."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest
from repository import ROOT

from baracuda.codegen.spec.family import FamilyName, families

NAMES = frozenset(get_args(FamilyName))
FOLDERS = ("benchmarks", "checking", "cli", "codegen", "frontends", "ops", "runtime")
ROOTS = ("codegen/families", "runtime/families", "checking/problems")
OWN = tuple(f"{root}/{name}" for root in ROOTS for name in NAMES)
# What else may name families, and why.
ALLOWED = {
    "codegen/spec/family.py": "lists them",
    "codegen/emit/render.py": "`list` and `map` are filters of Jinja",
    "checking/fuzz/targets/listing.py": "begins with one of our specs, which has to be of some family",
}


def own(path: str) -> bool:
    """Whether a file is a family's: in one of its folders, or its problems."""
    return path.startswith(tuple(f"{place}{end}" for place in OWN for end in ("/", ".py", "_")))


def sources() -> dict[str, str]:
    """Python files by path below the repository."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


SOURCES = sources()
CLASSES = frozenset(
    node.name
    for path, text in SOURCES.items()
    if own(path)
    for node in ast.parse(text).body
    if isinstance(node, ast.ClassDef) and node.name.startswith(tuple(name.capitalize() for name in NAMES))
)


def branches(text: str) -> Iterator[int]:
    """The lines in which code asks of what family something is."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                asks = bool(CLASSES & {*names_in(kinds)})
            case ast.MatchClass(cls=kind):
                asks = bool(CLASSES & {*names_in(kind)})
            case ast.Compare(left=left, comparators=[right]):
                sides = {*names_in(left)}, {*names_in(right)}
                asks = any("family" in side for side in sides) and any(side & NAMES for side in sides)
            case ast.Dict(keys=keys):
                asks = several(keys)
            case ast.Tuple(elts=entries) | ast.List(elts=entries) | ast.Set(elts=entries):
                asks = several(entries)
            case _:
                asks = False
        if asks:
            yield node.lineno


def names_in(node: ast.AST) -> Iterator[str]:
    """Names, members and texts in an expression."""
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name


def several(entries: Sequence[ast.expr | None]) -> bool:
    """Whether these name several families, or classes of some."""
    texts = [entry.value in NAMES for entry in entries if isinstance(entry, ast.Constant)]
    classes = [bool(CLASSES & {*names_in(entry)}) for entry in entries if isinstance(entry, ast.Name | ast.Attribute)]
    return sum([*texts, *classes]) > 1


@pytest.mark.parametrize("path", [path for path in SOURCES if not own(path) and path not in ALLOWED])
def test_nothing_asks_of_what_family_something_is(path: str) -> None:
    lines = [*branches(SOURCES[path])]
    assert not lines, f"{path}:{lines[0]} asks for a family by name; ask its `Family`, or a property of what it is of"


@pytest.mark.parametrize("path", ALLOWED)
def test_what_may_name_families_does(path: str) -> None:
    assert [*branches(SOURCES[path])]


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(spec, RowSpec | OpSpec)",
        "issubclass(plan, rt.MapPlan)",
        "match op:\n    case BodyOp():\n        pass",
        'if spec.family == "row":\n    pass',
        'data["family"] in ("map",)',
        '{"row": 1, "map": 2}',
        '("row", "list")',
        "{RowOp: 1, rt.MapPlan: 2}",
    ],
)
def test_it_is_seen_where_something_does(text: str) -> None:
    assert [*branches(text)]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_family_is_its_folders(name: str) -> None:
    """The list of names is all that tells of it."""
    assert families()[name].name == name
    places = (f"codegen/families/{name}/family.py", f"runtime/families/{name}/__init__.py", f"checking/problems/{name}")
    assert all((ROOT / place).exists() or (ROOT / f"{place}.py").exists() for place in places)
    assert (ROOT / "templates" / Path(families()[name].templates[0])).is_file()
