"""Operators on plans: requirements, the table of arguments, declarations, and how arrays are passed on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from . import expression_operators
from .expression_operators import Changed

Operator = Callable[[ast.Module], Changed]

_ERRORS = {"Unsupported": "InvalidProblem", "InvalidProblem": "Unsupported"}
_WORDS = {
    **{"in": "inout", "out": "inout", "inout": "out"},
    **{"element": "row", "row": "col", "col": "row", "any": "contiguous", "contiguous": "any", "inner": "any"},
    **{"T": "acc", "acc": "T"},
}
_TABLES = ("CHECK_ORDER", "RUNGS", "PROMISES", "SCALARS", "COLUMN_SUMS", "_elements", "_shape")
_ORDERED = ("CHECK_ORDER", "SCALARS", "COLUMN_SUMS", "_requires")
_TYPES = {"int": "float", "float": "int", "bool": "int"}


def comparison(module: ast.Module) -> Changed:
    """`<` for `<=`; equal for unequal."""
    yield from _in_formulas(module, expression_operators.comparison)


def connective(module: ast.Module) -> Changed:
    """`and` for `or`, a `not` or an operand dropped."""
    yield from _in_formulas(module, expression_operators.connective)


def constant(module: ast.Module) -> Changed:
    """The next number, the other bool, in requirements and in counts."""
    yield from _in_formulas(module, expression_operators.constant)
    for name, value in _assigned(module):
        if name == "ROW_REDUCTIONS":
            yield from expression_operators.constant(value)


def check(module: ast.Module) -> Changed:
    """A requirement dropped, or exchanged with the next one."""
    for name, value in _assigned(module):
        if name == "_requires":
            yield from _shortened(value)
            yield from _exchanged(value.elts if isinstance(value, ast.Tuple) else ())


def error(module: ast.Module) -> Changed:
    """The other error class."""
    for call in _calls(module, "Requirement"):
        if not call.keywords:
            yield call, f"{ast.unparse(call)[:-1]}, error=rt.Unsupported)"
        for word in call.keywords:
            if isinstance(word.value, ast.Attribute) and word.value.attr in _ERRORS:
                yield word.value, f"rt.{_ERRORS[word.value.attr]}"
    for text in _conditions(module):
        yield text, f"rt.Requirement({text.value!r}, error=rt.Unsupported)"


def table(module: ast.Module) -> Changed:
    """An entry of a table dropped, two exchanged, one word for another; another type of a field."""
    for name, value in _assigned(module):
        if name == "TENSORS":
            yield from _of_arguments(value)
        elif name in _TABLES:
            for node in ast.walk(value):
                yield from _shortened(node)
                if name in _ORDERED and isinstance(node, ast.Tuple):
                    yield from _exchanged(node.elts)
    for node in ast.walk(module):
        if isinstance(node, ast.AnnAssign) and (other := _TYPES.get(ast.unparse(node.annotation))):
            yield node.annotation, other


def _of_arguments(value: ast.expr) -> Changed:
    calls = [n for n in ast.walk(value) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    names = [c.args[0].value for c in calls if isinstance(c.args[0], ast.Constant)]
    flag_nodes = (k.value for c in calls for k in c.keywords if k.arg == "optional")
    flags = list(dict.fromkeys(value.value for value in flag_nodes if isinstance(value, ast.Constant)))
    for call in calls:
        for node in call.args[1:]:
            if isinstance(node, ast.Constant) and node.value in _WORDS:
                yield node, repr(_WORDS[node.value])
        for word in call.keywords:
            yield from _shortened(word.value)
            if isinstance(word.value, ast.Constant):
                others = [flag for flag in ("", *flags) if flag != word.value.value] if word.arg == "optional" else []
                yield from ((word.value, repr(other)) for other in others)
                if word.arg == "layout":
                    yield word.value, repr(_WORDS[str(word.value.value)])
            elif word.arg == "dtypes" and isinstance(word.value, ast.Tuple):
                yield from _exchanged(word.value.elts)
        keywords = {word.arg for word in call.keywords}
        written = isinstance(call.args[1], ast.Constant) and call.args[1].value != "in"
        additions = {"layout": "'contiguous'", "dtypes": "('acc',)", "may_alias": repr(tuple(names[1:]))}
        for key, entry in additions.items():
            if key not in keywords and (written or key != "may_alias"):
                yield call, f"{ast.unparse(call)[:-1]}, {key}={entry})"


def wiring(module: ast.Module) -> Changed:
    """An array passed under another's name."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._run":
            yield from _exchanged(node.args[0].elts if isinstance(node.args[0], ast.Tuple) else ())


def _shortened(node: ast.AST) -> Changed:
    """A tuple without each of its items in turn, a dict or a table without each of its keys."""
    if isinstance(node, ast.Tuple):
        for left_out in node.elts:
            yield node, ast.unparse(ast.Tuple([e for e in node.elts if e is not left_out], ast.Load()))
    elif isinstance(node, ast.Dict):
        for place in range(len(node.keys)):
            keys = [k for i, k in enumerate(node.keys) if i != place]
            yield node, ast.unparse(ast.Dict(keys, [v for i, v in enumerate(node.values) if i != place]))
    elif isinstance(node, ast.Call):
        for word in node.keywords:
            yield node, ast.unparse(ast.Call(node.func, node.args, [k for k in node.keywords if k is not word]))


def _exchanged(nodes: Sequence[ast.expr]) -> Changed:
    for first, second in pairwise(nodes):
        yield _span(first, second), f"{ast.unparse(second)}, {ast.unparse(first)}"


def _span(first: ast.AST, last: ast.AST) -> ast.AST:
    """A node that spans `first` to `last`."""
    node = ast.Pass()
    node.lineno, node.col_offset = first.lineno, first.col_offset  # type: ignore[attr-defined]
    node.end_lineno, node.end_col_offset = last.end_lineno, last.end_col_offset  # type: ignore[attr-defined]
    return node


def _calls(module: ast.Module, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node


def _in_formulas(module: ast.Module, operator: expression_operators.Operator) -> Changed:
    """What `operator` makes of the formulas of requirements, which are strings in the module."""
    texts = [call.args[0] for call in _calls(module, "Requirement")]
    for of in (*texts, *_conditions(module)):
        if isinstance(of, ast.Constant):
            text = str(of.value)
            for node, after in operator(ast.parse(text, mode="eval")):
                yield of, _with(text, node, after)


def _conditions(module: ast.Module) -> Iterator[ast.Constant]:
    """The requirements that are no more than a condition."""
    for name, value in _assigned(module):
        if name == "_requires" and isinstance(value, ast.Tuple):
            yield from (of for of in value.elts if isinstance(of, ast.Constant))


def _with(text: str, node: ast.AST, after: str) -> str:
    """The literal of a formula with `after` in the place of a part."""
    start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    return repr((text.encode()[:start] + after.encode() + text.encode()[end:]).decode())


def _assigned(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The class variables and their values."""
    for node in module.body:
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            if isinstance(target, ast.Name) and getattr(statement, "value", None) is not None:
                yield target.id, statement.value  # type: ignore[attr-defined]
