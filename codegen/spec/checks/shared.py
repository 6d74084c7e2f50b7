"""The rules that families have in common, in the order that they are asked."""

from __future__ import annotations

from . import budgets, everywhere, problems, program, unread
from .finding import Rule

FIRST: tuple[Rule, ...] = (everywhere.names, everywhere.texts, everywhere.fields, budgets.requirements)
PROGRAM: tuple[Rule, ...] = (program.program, program.oracle)
READ: tuple[Rule, ...] = (unread.inputs, unread.fields)
LAST: tuple[Rule, ...] = (problems.gradient, everywhere.promises, everywhere.arch, problems.draws, everywhere.bench)
