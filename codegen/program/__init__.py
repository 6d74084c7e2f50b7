"""The spec language's programs: parsed once, read three ways (CUDA text, NumPy values, error bounds)."""

from .cuda import to_cuda
from .parse import ProgramError, parse, parse_expression, to_source
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
    "parse",
    "parse_expression",
    "to_cuda",
    "to_source",
]
