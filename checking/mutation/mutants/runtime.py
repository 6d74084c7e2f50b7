"""All mutants of the runtime that plans share: what they select, check, prepare and remember."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from . import module_operators
from .expression_operators import EXPRESSION_OPERATORS
from .kernels import RUNTIME, Mutant
from .places import line_of, span

OPERATORS = {**module_operators.MODULE_OPERATORS, **EXPRESSION_OPERATORS}  # what operators share counts for the first
_PARTS = "arrays/*.py", "plans/*.py", "families/**/*.py", "compile/cubin*.py", "compile/headers.py", "cache/entries.py"


def of_runtime(root: Path) -> Iterator[Mutant]:
    """Every mutant of the shared runtime of the checkout `root`."""
    for path in sorted(path for part in _PARTS for path in (root / "runtime").glob(part)):
        yield from of_module(path.read_text(encoding="utf-8"), str(path.relative_to(root)))


def of_module(text: str, file: str) -> Iterator[Mutant]:
    """Every mutant of a module's text."""
    tree = ast.parse(text)
    passed_over = module_operators.for_readers(tree)
    seen: set[tuple[int, int, str]] = set()
    for name, operator in OPERATORS.items():
        for node, after in operator(tree):
            if id(node) in passed_over:
                continue
            start, end = span(text, node)
            if (start, end, after) not in seen and text[start:end] != after:
                seen.add((start, end, after))
                line, code = line_of(text, start)
                yield Mutant(RUNTIME, RUNTIME, name, file, line, code, start, text[start:end], after)
