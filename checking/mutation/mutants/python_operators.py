"""What is put into a plan: its checks, its table of arguments, what it declares and how it passes arrays on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

Changed = Iterator[tuple[ast.AST, str]]  # a piece of the module and what is put in its place
Operator = Callable[[ast.Module], Changed]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ERRORS = {"Unsupported": "InvalidProblem", "InvalidProblem": "Unsupported"}
_WORDS = {
    **{"in": "inout", "out": "inout", "inout": "out"},
    **{"element": "row", "row": "col", "col": "row", "any": "contiguous", "contiguous": "any"},
    **{"T": "acc", "acc": "T"},
}
_TABLES = ("ARGUMENTS", "CHECK_ORDER", "PROMISES", "SCALARS", "CHOSEN", "COLUMN_SUMS", "ROW_REDUCTIONS")
_DECLARED = ("_elements", "_types", "_shape")


def comparison(module: ast.Module) -> Changed:
    """The boundary on the other side; equal for unequal."""
    for node in _in_methods(module):
        if isinstance(node, ast.Compare):
            for place, sign in enumerate(node.ops):
                if other := _COMPARISONS.get(type(sign)):
                    ops = [other() if i == place else o for i, o in enumerate(node.ops)]
                    yield node, ast.unparse(ast.Compare(node.left, ops, node.comparators))


def connective(module: ast.Module) -> Changed:
    """`and` for `or`, an operand of either dropped, a `not` less."""
    for node in _in_methods(module):
        if isinstance(node, ast.BoolOp):
            other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
            for dropped in node.values:
                left = [v for v in node.values if v is not dropped]
                yield node, f"({ast.unparse(ast.BoolOp(node.op, left) if len(left) > 1 else left[0])})"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, f"({ast.unparse(node.operand)})"


def constant(module: ast.Module) -> Changed:
    """The next number, the other bool, in checks and in counts."""
    counts = (n for name, value in _assigned(module) if name == "ROW_REDUCTIONS" for n in ast.walk(value))
    for node in [*_in_methods(module), *counts]:
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, repr(not node.value if isinstance(node.value, bool) else node.value + 1)


def check(module: ast.Module) -> Changed:
    """A check removed, or made after the one behind it."""
    for body in (f.body for f in _methods(module) if f.name == "check"):
        checks = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        for statement in checks:
            yield statement, "pass"
        for first, second in pairwise(checks):
            indent = " " * first.col_offset
            both = ast.Module([second, first], [])
            yield _span(first, second), ast.unparse(both).replace("\n", f"\n{indent}")


def error(module: ast.Module) -> Changed:
    """The other error class; fewer values in the message."""
    for node in _in_methods(module):
        if isinstance(node, ast.Attribute) and node.attr in _ERRORS:
            yield node, f"{ast.unparse(node.value)}.{_ERRORS[node.attr]}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_violated":
            yield node.args[1], repr("something else")
            yield from _shortened(node.args[2])


def table(module: ast.Module) -> Changed:
    """An entry of a table left out, two exchanged, a word for another."""
    for name, value in _assigned(module):
        if name == "ARGUMENTS":
            yield from _of_arguments(value)
        elif name in (*_TABLES, *_DECLARED):
            for node in ast.walk(value):
                yield from _shortened(node)
                if name in ("CHECK_ORDER", "CHOSEN", "SCALARS", "COLUMN_SUMS") and isinstance(node, ast.Tuple):
                    yield from _exchanged(node.elts)
                if name in ("SCALARS", "COLUMN_SUMS") and isinstance(node, ast.Constant) and node.value:
                    yield node, repr({"d": "q", "q": "d"}.get(str(node.value), ""))
            if name == "_types":
                yield from _other_types(value)


def _of_arguments(value: ast.expr) -> Changed:
    calls = [n for n in ast.walk(value) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    names = [c.args[0].value for c in calls if isinstance(c.args[0], ast.Constant)]
    given_flags = (k.value for c in calls for k in c.keywords if k.arg == "optional")
    flags = list(dict.fromkeys(value.value for value in given_flags if isinstance(value, ast.Constant)))
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
        given = {word.arg for word in call.keywords}
        written = isinstance(call.args[1], ast.Constant) and call.args[1].value != "in"
        more = {"layout": "'contiguous'", "dtypes": "('acc',)", "may_alias": repr(tuple(names[1:]))}
        for key, entry in more.items():
            if key not in given and (written or key != "may_alias"):
                yield call, f"{ast.unparse(call)[:-1]}, {key}={entry})"


def wiring(module: ast.Module) -> Changed:
    """An array handed on under another's name."""
    for node in _in_methods(module):
        if isinstance(node, ast.Dict):
            for place in range(1, len(node.values)):
                values = list(node.values)
                values[place - 1 : place + 1] = reversed(values[place - 1 : place + 1])
                yield node, ast.unparse(ast.Dict(node.keys, values))


def _shortened(node: ast.AST) -> Changed:
    """A tuple without each of its items in turn, a dict without each of its keys."""
    if isinstance(node, ast.Tuple):
        for left_out in node.elts:
            yield node, ast.unparse(ast.Tuple([e for e in node.elts if e is not left_out], ast.Load()))
    elif isinstance(node, ast.Dict):
        for place in range(len(node.keys)):
            keys = [k for i, k in enumerate(node.keys) if i != place]
            yield node, ast.unparse(ast.Dict(keys, [v for i, v in enumerate(node.values) if i != place]))


def _exchanged(nodes: Sequence[ast.expr]) -> Changed:
    for first, second in pairwise(nodes):
        yield _span(first, second), f"{ast.unparse(second)}, {ast.unparse(first)}"


def _other_types(value: ast.expr) -> Changed:
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and node.attr.startswith("as_"):
            yield node, f"{ast.unparse(node.value)}.{'as_float' if node.attr == 'as_int' else 'as_int'}"


def _span(first: ast.AST, last: ast.AST) -> ast.AST:
    """A node that stands for everything from `first` to `last`."""
    node = ast.Pass()
    node.lineno, node.col_offset = first.lineno, first.col_offset  # type: ignore[attr-defined]
    node.end_lineno, node.end_col_offset = last.end_lineno, last.end_col_offset  # type: ignore[attr-defined]
    return node


def _methods(module: ast.Module) -> Iterator[ast.FunctionDef]:
    for one in module.body:
        if isinstance(one, ast.ClassDef):
            yield from (f for f in one.body if isinstance(f, ast.FunctionDef))


def _in_methods(module: ast.Module) -> Iterator[ast.AST]:
    """Everything in the bodies of methods."""
    for method in _methods(module):
        for statement in method.body:
            yield from ast.walk(statement)


def _assigned(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The class variables, with what they are set to."""
    for one in module.body:
        for statement in one.body if isinstance(one, ast.ClassDef) else ():
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            if isinstance(target, ast.Name) and getattr(statement, "value", None) is not None:
                yield target.id, statement.value  # type: ignore[attr-defined]
