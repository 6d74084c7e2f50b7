"""The spec language's programs: parsed once, read three ways (CUDA text, NumPy values, error bounds)."""

from .error import ProgramError
from .kinds import kind_of
from .parse import parse, parse_expression
from .reader import parse_functions
from .source import to_source
from .tree import Call, Const, Expr, Line, Name, Reduce, Scope

__all__ = [
    "Call",
    "Const",
    "Expr",
    "Line",
    "Name",
    "ProgramError",
    "Reduce",
    "Scope",
    "kind_of",
    "parse",
    "parse_expression",
    "parse_functions",
    "to_source",
]
