"""A tree read as CUDA: the order of operations is the author's, every value is of the accumulator's type."""

from __future__ import annotations

import math
from collections.abc import Collection

from ..text import Code
from .error import ProgramError
from .kinds import Kinds, kind_of
from .ops import OPS
from .tree import Call, Cast, Const, Expr, Name, Query, Reduce, at_index, walk

# How tightly C++ binds; an operand that binds less tightly than its place asks for is put in parentheses.
_BINDS = {"*": 13, "/": 13, "+": 12, "-": 12, "<": 10, "<=": 10, ">": 10, ">=": 10, "==": 9, "!=": 9}
_BINDS |= {"and": 5, "or": 4}
_WRAPPING = {"+": "add", "-": "subtract", "*": "multiply"}  # on integers: C++ leaves their overflow undefined
_UNARY, _TERNARY, _PRIMARY = 15, 1, 20
# What each cast rounds to; 16-bit types convert to float and to nothing else.
_CAST = {"T": "T({})", "acc": "{}", "f16": "float(f16({}))", "bf16": "float(bf16({}))", "f32": "float({})"}
_CAST |= {"f64": "double({})"}


# What prints a function whose result is only multiplied before it is stored.
_SCALING = {"erfc": "math::erfc_for<{result}>({})"}


def to_cuda(
    expr: Expr,
    kinds: Kinds,
    short: bool = False,
    divisors: Collection[str] = (),
    column: str = "",
    result: str = "T",
    stored: bool = False,
) -> Code:
    """Print `expr` as CUDA in terms of the element type T and the accumulator's acc_t.

    A name has an underscore behind it, as `names.in_kernel` says. Numbers written out have 64 bits; where they are
    `short`, whole numbers have the type of what they are made of. Kernels divide by the fields `divisors` as arguments.
    An element `e` says whether it is at a place along `column`. What is made of functions ends up as a `result`; an
    expression that is `stored` becomes one as it is.
    """
    alone = _scaling(expr) if stored else None
    return Code(_Printer(kinds, short, divisors, column, result, alone).text(expr, kind_of(expr, kinds)))


def _scaling(expr: Expr) -> Expr | None:
    """The only function of _SCALING in `expr`, if that only multiplies it: the result has its relative error."""
    found = [part for part in walk(expr) if isinstance(part, Call) and part.op in _SCALING]
    while len(found) == 1 and isinstance(expr, Call):
        if expr == found[0]:
            return expr
        factors = [arg for arg in expr.args if found[0] in walk(arg)]
        if expr.op not in ("mul", "neg") or not factors:
            break
        expr = factors[0]
    return None


class _Printer:
    def __init__(
        self, kinds: Kinds, short: bool, divisors: Collection[str], column: str, result: str, scaling: Expr | None
    ) -> None:
        self.kinds, self.short, self.divisors, self.column = kinds, short, divisors, column
        self.result, self.scaling = result, scaling

    def text(self, expr: Expr, want: str) -> str:
        return self._place(expr, want)[0]

    def _place(self, expr: Expr, want: str) -> tuple[str, int]:
        """The text of `expr` as a value of kind `want`, and how tightly it binds."""
        have = kind_of(expr, self.kinds)
        if isinstance(expr, Const):
            return self._const(expr.value, want), _PRIMARY
        if have == "int" and want == "float":
            return f"acc_t({self._place(expr, 'int')[0]})", _PRIMARY
        match expr:
            case Name(id=name):
                return f"{name}_", _PRIMARY
            case Query(what="present", of=of):
                return f"HAS_{of.upper()}", _PRIMARY
            case Query(what="size", of=of):
                return f"{of}_size", _PRIMARY
            case Query(of=of):
                return f"{of}_index", _PRIMARY
            case Cast(to=to, arg=arg):
                return f"acc_t({_CAST[to].format(self._place(arg, 'float')[0])})", _PRIMARY
            case Reduce():
                raise ProgramError("a reduction must have been given a line of its own")
            case Call():
                return self._call(expr, want)
        raise AssertionError(expr)

    def _const(self, value: bool | int | float, want: str) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if want == "int":
            number = f"{value}" if self.short and abs(value) < 2**31 else f"{value}ll"
            return number if value >= 0 else f"({number})"
        if math.isinf(value):
            return "math::infinity<acc_t>()" if value > 0 else "(-math::infinity<acc_t>())"
        return f"acc_t({value!r})"

    def _call(self, expr: Call, want: str) -> tuple[str, int]:
        row, args = OPS[expr.op], expr.args
        operand_kinds = [kind_of(a, self.kinds) for a in args]
        inner = "float" if row.kind == "float" or "float" in operand_kinds else operand_kinds[-1]
        if expr.op == "where":
            parts = [self._tight(args[0], "bool", _TERNARY + 1)]
            parts += [self._tight(a, kind_of(expr, self.kinds), _TERNARY + 1) for a in args[1:]]
            return row.cuda.format(*parts), _TERNARY
        place = at_index(self.column, expr)
        if place is not None and kind_of(place, self.kinds) == "int":
            return f"e.at({self._place(place, inner)[0]})", _PRIMARY
        if expr.op in ("floor_divide", "remainder") and (special := self._quotient(expr.op, *args)):
            return special, _PRIMARY
        if not row.symbol or row.cuda.startswith("math::"):
            form = _SCALING[expr.op] if expr == self.scaling else row.cuda
            return form.format(*(self._place(a, inner)[0] for a in args), result=self.result), _PRIMARY
        if inner == "int" and row.symbol in _WRAPPING:
            operands = [self._place(a, inner)[0] for a in args]
            return f"math::{_WRAPPING[row.symbol]}({', '.join([self._const(0, inner), *operands][-2:])})", _PRIMARY
        if row.arity == 1:
            return row.cuda.format(self._tight(args[0], inner, _UNARY + 1)), _UNARY
        binds = _BINDS[row.symbol]
        left, right = self._tight(args[0], inner, binds), self._tight(args[1], inner, binds + 1)
        return row.cuda.format(left, right), binds

    def _quotient(self, op: str, number: Expr, by: Expr) -> str:
        """A quotient or remainder by a number or a field that is known before the kernel runs; "" for others."""
        match by:
            case Const(value=value) if value > 0:
                return f"math::{op}_by<{value}>({self._place(number, 'int')[0]})"
            case Name(id=name) if name in self.divisors:
                return f"math::{op}({self._place(number, 'int')[0]}, args.{name}_)"
        return ""

    def _tight(self, expr: Expr, want: str, binds: int) -> str:
        text, precedence = self._place(expr, want)
        return text if precedence >= binds else f"({text})"
