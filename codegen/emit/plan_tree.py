"""Checks a generated plan's syntax tree: it must consist of plan classes that are declared and registered.

Text of a spec is never printed as code, so this finds nothing unless that fails: a plan may only call functions of the
runtime, of `math` and its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from baracuda.runtime import SpecError

from ..lower.op import Op

_IMPORTS = frozenset(
    (
        "from __future__ import annotations",
        "import math",
        "from dataclasses import dataclass",
        "from typing import ClassVar",
        "from typing import Any, ClassVar",
        "import baracuda.runtime as rt",
    )
)
_OF_STUBS = frozenset(
    (
        "from collections.abc import Sequence",
        "from typing import Any, NamedTuple",
        "from numpy.typing import DTypeLike",
        "import baracuda.runtime as rt",
    )
)
_BUILT_IN = frozenset(("len", "min", "max", "abs"))
_CALLED = _BUILT_IN | frozenset(("dataclass",))
_USED = (
    "rt math self d s v a arrays workspace stream staticmethod ClassVar Any tuple dict str int float bool None __all__ "
    "__package__"
)
_NAMES = _CALLED | frozenset(_USED.split())
_MODULES = frozenset(("rt", "math", "self"))  # whose functions may be called
_ASKED = "_violated _check_element _check_extents _run _run_unchecked _bind _can_implement"
_PRIVATE = frozenset(_ASKED.split())
_DEFINED = (
    "_check _col_axes run run_unchecked bind can_implement shapes_of _settings_of _add_terms _scratch_of _kernels_of"
)
_METHODS = frozenset(_DEFINED.split())
_SYNTAX = (
    ast.AnnAssign, ast.Assign, ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.ClassDef, ast.Compare, ast.Constant,
    ast.Dict, ast.DictComp, ast.Expr, ast.FunctionDef, ast.If, ast.IfExp, ast.Import, ast.ImportFrom, ast.Lambda,
    ast.List, ast.Module, ast.Name, ast.Raise, ast.Return, ast.Subscript, ast.Tuple, ast.UnaryOp, ast.alias, ast.arg,
    ast.arguments, ast.boolop, ast.cmpop, ast.comprehension, ast.expr_context, ast.keyword, ast.operator, ast.unaryop,
)  # fmt: skip


def check_plan(text: str, op: Op) -> None:
    """Raise SpecError unless `text` consists of the plans of `op`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise _unexpected(op, getattr(error, "lineno", 0) or 0) from None
    for line in _wrong(tree, op):
        raise _unexpected(op, line)


def check_stub(text: str) -> None:
    """Raise SpecError unless the stub consists of functions and their result tuples."""
    try:
        wrong = [node.lineno for node in ast.parse(text).body if not (_is_of_stub(node) or _is_text(node))]
    except (SyntaxError, ValueError) as error:
        wrong = [getattr(error, "lineno", 0) or 0]
    if wrong:
        place = f"_functions.pyi:{wrong[0]}"
        raise SpecError(f"the functions generated of the specs are none at {place}; please report this")


def _is_of_stub(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(body=[body], decorator_list=[]):
            return _is_text(body)
        case ast.ClassDef(bases=[ast.Name(id="NamedTuple")], body=body, decorator_list=[]):
            return all(isinstance(one, ast.AnnAssign) and one.value is None for one in body)
        case ast.Import() | ast.ImportFrom():
            return ast.unparse(node) in _OF_STUBS
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False


def _unexpected(op: Op, line: int) -> SpecError:
    place = f"{op.category}/{op.name}.py:{line}"
    return SpecError(f"{op.spec_path}: the plan generated of it is none at {place}; please report this")


def _wrong(tree: ast.Module, op: Op) -> Iterator[int]:
    """The lines that do not belong in a plan."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [node for one in classes for node in one.body if isinstance(node, ast.FunctionDef)]
    if [one.name for one in classes] != [op.descriptor, *op.plans]:
        yield 1
    yield from _others(tree.body, _is_of_module)
    for one in classes:
        yield from _others(one.body, _is_of_class)
    for method in methods:
        yield from _others(method.body, _is_of_method)
    names = _NAMES | {op.descriptor, *op.plans, *(t.name for t in op.tensors)}
    for node in ast.walk(tree):
        if not (isinstance(node, _SYNTAX) and _is_known(node, names)):
            yield getattr(node, "lineno", 0)


def _others(statements: list[ast.stmt], belongs: Callable[[ast.stmt], bool]) -> Iterator[int]:
    return (node.lineno for node in statements if not (belongs(node) or _is_text(node)))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_of_module(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom():
            return ast.unparse(node) in _IMPORTS
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.ClassDef():
            return True
        case ast.Expr(value=ast.Call(func=called)):
            return ast.unparse(called) == "rt.REGISTRY.register"
    return False


def _is_of_class(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(name=name):
            return name in _METHODS
        case ast.AnnAssign(target=ast.Name()) | ast.Assign(targets=[ast.Name()]):
            return True
    return False


def _is_of_method(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id="arrays") | ast.Attribute(value=ast.Name(id="v"))]):
            return True
        case ast.If(body=[ast.Raise()], orelse=[]) | ast.Return():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))):
            return name in _PRIVATE
    return False


def _is_known(node: ast.AST, names: frozenset[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute() as called):
            return ast.unparse(called).partition(".")[0] in _MODULES and _is_path(called)
        case ast.Call(func=called):
            return isinstance(called, ast.Name) and called.id in _CALLED
        case ast.Name(id=name, ctx=ast.Load()):
            return name in names
        case ast.Attribute(attr=name):
            return not name.startswith("_") or name in _PRIVATE
    return True


def _is_path(node: ast.expr) -> bool:
    """Whether it is a dotted name."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_path(node.value))
