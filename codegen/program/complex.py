"""Complex numbers, as pairs of real ones: programs are written out in real arithmetic while they are read.

`complex(re, im)` stands for a complex value, and whatever takes one becomes arithmetic of its parts. So a kernel's
registers and sums, the bound on its error and its derivative are those of real programs, part by part. In a tree only
three rows of `OPS` are about complex numbers: `real` and `imag` of an array's element, `complex` of what is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .error import ProgramError
from .tree import Call, Cast, Const, Expr, Name, Read, Reduce

LIBRARY = Path(__file__).with_suffix(".txt")
PARTS = ("real", "imag")
FUNCTIONS = ("conj",)  # beside those that are rows of OPS
_IN_PARTS = ("neg", "stop_gradient")
_REDUCED_IN_PARTS = ("sum", "mean")
_INSTEAD = {
    "prod": "write exp(sum(log(x), dim))",
    "where": "its condition is a bool, as x != 0",
}
_REAL = "take abs(x), real(x) or imag(x)"
_ZERO = Const(0.0)

Named = Callable[[Expr], Expr]  # gives what is read twice a line of its own
Written = Callable[[str, list[Expr]], list[Expr]]  # writes out a function of the library


def is_complex(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op == "complex"


def parts_of(expr: Expr) -> tuple[Expr, Expr]:
    """The real and the imaginary part of a value as it is read."""
    match expr:
        case Call(op="complex", args=(re, im)):
            return re, im
    return expr, _ZERO


def element(expr: Name | Read) -> Expr:
    """The element of a complex array as a value."""
    re, im = (Call(part, (expr,)) for part in PARTS)
    return Call("complex", (re, im))


def whole(expr: Expr) -> Expr:
    """The array's element whose two parts `expr` is made of, or `expr`."""
    match expr:
        case Call(op="complex", args=(Call(op="real", args=(a,)), Call(op="imag", args=(b,)))) if a == b:
            return a
    return expr


class Complex:
    """Makes expressions of operands that may be complex."""

    def __init__(self, named: Named, written: Written) -> None:
        self.named, self.written = named, written

    def call(self, op: str, args: tuple[Expr, ...]) -> Expr:
        match op, args:
            case ("real", (a,)):
                return parts_of(a)[0]
            case ("imag", (a,)):
                return parts_of(a)[1]
            case ("conj", (a,)) if not is_complex(a):
                return a
            case ("complex", _) if any(map(is_complex, args)):
                raise ProgramError("complex takes two real numbers, got a complex one; add it, as in x + complex(0, y)")
        if op == "complex" or not any(map(is_complex, args)):
            return Call(op, args)
        return self._of_complex(op, args)

    def reduce(self, kind: str, arg: Expr, dims: tuple[str, ...]) -> Expr:
        if not is_complex(arg):
            return Reduce(kind, arg, dims)
        parts = [Reduce(kind, part, dims) for part in parts_of(arg)]
        if kind == "var":  # of the distances from the mean, which are real
            return Call("add", (parts[0], parts[1]))
        if kind not in _REDUCED_IN_PARTS:
            raise ProgramError(f"{kind} takes real numbers, got complex ones; {_INSTEAD.get(kind, _REAL)}")
        return Call("complex", (parts[0], parts[1]))

    def cast(self, to: str, arg: Expr) -> Expr:
        return self._pair(*(Cast(to, part) for part in parts_of(arg))) if is_complex(arg) else Cast(to, arg)

    def _of_complex(self, op: str, args: tuple[Expr, ...]) -> Expr:
        (a, b), *others = map(parts_of, args)
        match op, others:
            case ("conj", _):
                return self._pair(a, Call("neg", (b,)))
            case (op, _) if op in _IN_PARTS:
                return self._pair(Call(op, (a,)), Call(op, (b,)))
            case ("add" | "sub", _):
                return self._sum(op, *args)
            case ("mul" | "div", [(c, d)]):
                return self._product(op, args, a, b, c, d)
            case ("fma", _):
                return self.call("add", (self.call("mul", args[:2]), args[2]))
            case ("equal", [(c, d)]):
                return Call("logical_and", (Call("equal", (a, c)), Call("equal", (b, d))))
            case ("not_equal", [(c, d)]):
                return Call("logical_or", (Call("not_equal", (a, c)), Call("not_equal", (b, d))))
            case ("isnan", _):
                return Call("logical_or", (Call("isnan", (a,)), Call("isnan", (b,))))
            case ("where", [(c, d), (e, f)]) if not is_complex(args[0]):
                condition = self.named(args[0])
                return self._pair(*(Call("where", (condition, x, y)) for x, y in ((c, e), (d, f))))
        try:
            results = self.written(f"complex_{op}", [a, b, *(part for other in others for part in other)])
        except KeyError:
            text = _INSTEAD.get(op, _REAL)
            raise ProgramError(f"{_SYMBOLS.get(op, op)} takes real numbers, got a complex one; {text}") from None
        return self._pair(*results) if len(results) > 1 else results[0]

    @staticmethod
    def _pair(re: Expr, im: Expr) -> Expr:
        return Call("complex", (re, im))

    def _sum(self, op: str, left: Expr, right: Expr) -> Expr:
        """A real operand has no imaginary part to add: -0 stays -0."""
        (a, b), (c, d) = parts_of(left), parts_of(right)
        if not is_complex(right):
            return self._pair(Call(op, (a, c)), b)
        im = Call(op, (b, d)) if is_complex(left) else d if op == "add" else Call("neg", (d,))
        return self._pair(Call(op, (a, c)), im)

    def _product(self, op: str, args: tuple[Expr, ...], a: Expr, b: Expr, c: Expr, d: Expr) -> Expr:
        """A real factor or divisor scales both parts."""
        match op, b, d:
            case "mul", _, Call(op="neg", args=(e,)):  # by a conjugate: without the negation, the same sums and bits
                return self._pair(*self.written("complex_mul_conj", [a, b, c, e]))
            case "mul", Call(op="neg", args=(e,)), _ if is_complex(args[1]):
                return self._pair(*self.written("complex_mul_conj", [c, d, a, e]))
        if all(map(is_complex, args)):
            return self._pair(*self.written(f"complex_{op}", [a, b, c, d]))
        if is_complex(args[0]):
            c = self.named(c)
            return self._pair(Call(op, (a, c)), Call(op, (b, c)))
        if op == "mul":
            a = self.named(a)
            return self._pair(Call(op, (a, c)), Call(op, (a, d)))
        return self._pair(*self.written("complex_reciprocal", [a, c, d]))


_SYMBOLS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "floor_divide": "//"}
_SYMBOLS |= {"remainder": "%"}
