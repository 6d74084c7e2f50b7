"""All mutants of a generated plan, and how one replaces the plan."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from . import python_operators
from .kernels import PLAN, Mutant
from .places import line_of, span
from .python_operators import Operator

PLAN_OPERATORS: dict[str, Operator] = {
    function.__name__: function
    for function in (
        python_operators.comparison,
        python_operators.connective,
        python_operators.constant,
        python_operators.check,
        python_operators.error,
        python_operators.table,
        python_operators.wiring,
    )
}


def source_of(module: ModuleType) -> tuple[str, str]:
    """The displayed path of a plan's module, and its text."""
    assert module.__file__ is not None
    return "/".join(module.__name__.split(".")[1:]) + ".py", Path(module.__file__).read_text(encoding="utf-8")


def of_plan(op: str, module: ModuleType) -> Iterator[Mutant]:
    """Every mutant of the plan of `op` in `module`."""
    path, text = source_of(module)
    seen: set[tuple[int, str, str]] = set()
    for name, operator in PLAN_OPERATORS.items():
        for node, after in operator(ast.parse(text)):
            mutant = _mutant(op, path, text, name, node, after)
            if (key := (mutant.start, mutant.before, after)) not in seen and mutant.before != after:
                seen.add(key)
                yield mutant


def _mutant(op: str, path: str, text: str, operator: str, node: ast.AST, after: str) -> Mutant:
    start, end = span(text, node)
    line, code = line_of(text, start)
    return Mutant(op, PLAN, operator, path, line, code, start, text[start:end], after)


def put_in_place(name: str, text: str) -> None:
    """Replace module `name` by `text` in this process."""
    original = import_module(name)
    module = ModuleType(name)
    module.__file__, module.__package__ = original.__file__, original.__package__
    sys.modules[name] = module
    exec(compile(text, str(original.__file__), "exec"), module.__dict__)
