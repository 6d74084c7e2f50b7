"""The slope of each function, for each of its operands."""

from __future__ import annotations

from .parse import parse_expression
from .tree import Scope, reads

# Of the operands a, b, c, the result r and its adjoint g, for each operand. A row of OPS without rules has no slope.
RULES: dict[str, tuple[str, ...]] = {
    "add": ("g", "g"),
    "sub": ("g", "-g"),
    "mul": ("g * b", "g * a"),
    "div": ("g / b", "-g * a / (b * b)"),
    "neg": ("-g",),
    "fma": ("g * b", "g * a", "g"),
    "abs": ("where(a > 0, g, where(a < 0, -g, a))",),  # at 0 it is 0, and of NaN NaN
    "maximum": ("where(a > b, g, where(a < b, 0.0, 0.5 * g))", "where(b > a, g, where(b < a, 0.0, 0.5 * g))"),
    "minimum": ("where(a < b, g, where(a > b, 0.0, 0.5 * g))", "where(b < a, g, where(b > a, 0.0, 0.5 * g))"),
    "sqrt": ("0.5 * g / r",),
    "safe_sqrt": ("where(r == 0, 0.0, 0.5 * g / r)",),
    "rsqrt": ("-0.5 * g * r * r * r",),
    "exp": ("g * r",),
    "exp2": ("0.6931471805599453 * g * r",),
    "expm1": ("g * (r + 1)",),
    "log": ("g / a",),
    "log2": ("1.4426950408889634 * g / a",),
    "log1p": ("g / (1 + a)",),
    "tanh": ("g * (1 - r * r)",),
    "sin": ("g * cos(a)",),
    "cos": ("-g * sin(a)",),
    "tan": ("g * (1 + r * r)",),
    "asin": ("g / sqrt((1 - a) * (1 + a))",),
    "acos": ("-g / sqrt((1 - a) * (1 + a))",),
    "atan": ("g / (1 + a * a)",),
    "sinh": ("g * cosh(a)",),
    "cosh": ("g * sinh(a)",),
    "asinh": ("g / sqrt(1 + a * a)",),
    "acosh": ("g / sqrt((a - 1) * (a + 1))",),
    "atanh": ("g / ((1 - a) * (1 + a))",),
    "cbrt": ("g / (3 * r * r)",),
    "exp10": ("2.302585092994046 * g * r",),
    "log10": ("0.4342944819032518 * g / a",),
    "pow": ("where(b == 0, 0.0, g * b * pow(a, b - 1))", "g * r * log(where(a == 0, 1.0, a))"),
    "atan2": ("g * b / (a * a + b * b)", "-g * a / (a * a + b * b)"),
    "hypot": ("g * a / r", "g * b / r"),
    "fmod": ("g", "-g * trunc(a / b)"),
    "copysign": ("where(a == 0, 0.0, where(a == r, g, -g))", ""),
    "erf": ("1.1283791670955126 * g * exp(-a * a)",),
    "erfc": ("-1.1283791670955126 * g * exp(-a * a)",),
    "sigmoid": ("g * r * (1 - r)",),
}
_NAMES = {name: frozenset[str]() for name in "abcrg"}
READ = {op: tuple(parse_expression(t, Scope((), _NAMES)) if t else None for t in ts) for op, ts in RULES.items()}
NAMED = frozenset(op for op, texts in RULES.items() if any("r" in reads(r) for r in READ[op] if r and texts))
