"""What generated files may contain, whatever the spec: known statements and names, and no code of a payload."""

from __future__ import annotations

import ast
import builtins
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache

from baracuda.codegen.project import installed

from .draw.payloads import MARK

_MODULE = (ast.Expr, ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign, ast.If)
_NAMES_BUILT_IN = frozenset(dir(builtins))
_APART = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|^[ \t]*#[ \t]*line[^\n]*', re.DOTALL | re.MULTILINE
)
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # Unicode categories that display misleadingly


def problems(files: Mapping[str, str]) -> Iterator[str]:
    """What generated files contain that they may not."""
    for path, text in files.items():
        if bad := hidden_in(text):
            yield f"{path}: holds the character {bad!a}"
        faults = _of_python(text) if path.endswith((".py", ".pyi")) else _of_cuda(text) if path.endswith(".cu") else ()
        yield from (f"{path}: {problem}" for problem in faults)


def hidden_in(text: str) -> str:
    """The first control character, or character that changes the displayed order or lines; else ""."""
    if text.replace("\n", "").isprintable():
        return ""
    return next((c for c in text if c != "\n" and unicodedata.category(c) in _HIDDEN), "")


def _of_python(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        yield f"does not parse: {error}"
        return
    for node in tree.body:
        if not isinstance(node, _MODULE):
            yield f"line {node.lineno}: a module holds no {type(node).__name__}"
        if isinstance(node, ast.Expr) and not _is_expected(node.value):
            yield f"line {node.lineno}: {ast.unparse(node)[:80]!r} is not expected here"
    if strange := sorted(n for n in _loaded(tree) if MARK in n or (n in _NAMES_BUILT_IN and n not in usual_names())):
        yield f"uses {', '.join(strange[:3])}"


def _is_expected(value: ast.expr) -> bool:
    """Whether it is a docstring or registers kernels."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) or value.value is ...
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "rt.REGISTRY.register"


def _loaded(tree: ast.AST, bound: frozenset[str] = frozenset()) -> set[str]:
    """Names that code reads, without parameters; and attributes that contain a payload."""
    if isinstance(tree, ast.FunctionDef):
        arguments = tree.args
        bound |= {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if isinstance(tree, ast.Name):
        return {tree.id} - bound if isinstance(tree.ctx, ast.Load) else set()
    names = {tree.attr} if isinstance(tree, ast.Attribute) and MARK in tree.attr else set()
    return names.union(*(_loaded(inner, bound) for inner in ast.iter_child_nodes(tree)))


@cache
def usual_names() -> frozenset[str]:
    """The builtins that the plans of this distribution use."""
    paths = [p for p in installed("baracuda.generated").rglob("*") if p.suffix in (".py", ".pyi")]
    names = {name for path in paths for name in _loaded(ast.parse(path.read_text(encoding="utf-8")))}
    return frozenset(names & _NAMES_BUILT_IN | {"bool", "float", "int", "str", "tuple", "len", "min", "max", "abs"})


def _of_cuda(text: str) -> Iterator[str]:
    code = _APART.sub(" ", text)
    if MARK in code:
        at = code.index(MARK)
        yield f"has a payload outside of comments and strings: {code[max(0, at - 40) : at + 40]!r}"
    if any(line.rstrip().endswith(("\\", "??/")) and "//" in line for line in text.splitlines()):
        yield "a comment goes on in the next line"
    for opens, closes in ("()", "{}", "[]"):
        if code.count(opens) != code.count(closes):
            yield f"has {code.count(opens)} {opens} and {code.count(closes)} {closes}"
