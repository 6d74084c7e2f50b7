"""Static types and bounds of conditions.

Every field is a 64-bit word, a float, a bool or a shape of at most `MAX_RANK` extents. From there, intervals give the
largest int and longest tuple of every part, so an accepted condition is bounded in time and memory wherever it runs: in
the generator and, printed as Python, in a generated plan.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise, product
from typing import NamedTuple

from baracuda.runtime.values import MAX_RANK

from .parse import ConditionError, parsed

MAX_BITS = 8_320  # of an int: all extents of two shapes multiplied, and some more
MAX_LENGTH = 1024  # of a tuple
MAX_WORK = 20_000  # operations of one condition, elements of tuples counted one by one


class Kind(NamedTuple):
    """A type with bounds: of an int or a tuple's elements, and of their number."""

    name: str  # "bool", "int", "float" or "tuple"
    low: int = 0
    high: int = 1
    least: int = 0
    most: int = 0

    @property
    def bits(self) -> int:
        """Bits of the largest magnitude."""
        return max(abs(self.low), abs(self.high)).bit_length()

    @property
    def is_zero(self) -> bool:
        return self.name in ("bool", "int") and self.low == self.high == 0


BOOL, FLOAT, WORD = Kind("bool"), Kind("float"), Kind("int", -(2**63), 2**63 - 1)
SHAPE = Kind("tuple", WORD.low, WORD.high, 0, MAX_RANK)
OF_FIELD = {"bool": BOOL, "float": FLOAT, "int": WORD, "shape": SHAPE}


def kind_of(text: str, names: Mapping[str, Kind]) -> Kind:
    """The type of an expression over `names`; ConditionError if it has none or exceeds the budget."""
    reader = _Reader(names)
    return reader.kind(parsed(text, names))


class _Reader:
    """Visits a tree bottom-up; `work` counts the operations of evaluating it."""

    def __init__(self, names: Mapping[str, Kind]) -> None:
        self.names, self.work = names, 0

    def kind(self, node: ast.AST) -> Kind:
        kind = self._kind(node)
        self.work += 1 + kind.most
        if self.work > MAX_WORK:
            raise ConditionError(f"may take more than {MAX_WORK} operations; shorten it")
        return kind

    def _kind(self, node: ast.AST) -> Kind:
        match node:
            case ast.Expression(body=body):
                return self.kind(body)
            case ast.Constant(value=value):
                return _constant(value)
            case ast.Name(id=name):
                return self.names[name]
            case ast.Tuple(elts=elements):
                return _tuple([self._strict_int(e, "an element of a tuple") for e in elements])
            case ast.Subscript(value=value, slice=index):
                return _element(self._tuple(value, "what has an index"), self._int(index, "an index"))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(name, arguments)
        return self._operator(node)

    def _operator(self, node: ast.AST) -> Kind:
        match node:
            case ast.Compare(left=left, comparators=others):
                return _compared([self.kind(part) for part in (left, *others)])
            case ast.BoolOp(values=values):
                return _joined([self._scalar(part, "an operand of `and` and `or`") for part in values])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._scalar(test, "what stands behind `if`")
                return _joined([self.kind(body), self.kind(orelse)])
            case ast.UnaryOp(op=op, operand=operand):
                return _unary(op, self._scalar(operand, "an operand"))
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(op, self.kind(left), self.kind(right))
        raise ConditionError(f"{ast.unparse(node)[:60]!r} is not allowed here")

    def _call(self, name: str, arguments: list[ast.expr]) -> Kind:
        if name in ("min", "max") and len(arguments) > 1:
            return _joined([self._scalar(part, f"an operand of {name}") for part in arguments])
        if name == "bucket" and arguments:
            return _joined([self._int(part, "an operand of bucket") for part in arguments])
        takes, gives = _SIGNATURES[name]
        if len(arguments) != len(takes):
            raise ConditionError(f"{name} takes {len(takes)} operand{'s'[: len(takes) != 1]}, got {len(arguments)}")
        read = {"tuple": self._tuple, "int": self._int, "number": self._scalar}
        return gives(*(read[kind](part, f"an operand of {name}") for kind, part in zip(takes, arguments, strict=True)))

    def _require(self, node: ast.AST, kinds: Iterable[str], needs: str, subject: str) -> Kind:
        kind = self.kind(node)
        if kind.name not in kinds:
            raise ConditionError(f"{subject} must be {needs}, got {ast.unparse(node)[:60]!r}, a {kind.name}")
        return kind

    def _scalar(self, node: ast.AST, subject: str) -> Kind:
        return self._require(node, ("bool", "int", "float"), "a number or a bool", subject)

    def _int(self, node: ast.AST, subject: str) -> Kind:
        return self._require(node, ("bool", "int"), "an int", subject)

    def _strict_int(self, node: ast.AST, subject: str) -> Kind:
        return self._require(node, ("int",), "an int", subject)

    def _tuple(self, node: ast.AST, subject: str) -> Kind:
        return self._require(node, ("tuple",), "a tuple", subject)


def _constant(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind("bool", value, value)
    return Kind("int", value, value) if isinstance(value, int) else FLOAT


def _int(*bounds: int) -> Kind:
    """An int between the smallest and largest of these."""
    return _bounded(Kind("int", min(bounds), max(bounds)))


def _bounded(kind: Kind) -> Kind:
    if kind.bits > MAX_BITS:
        raise ConditionError(f"an int may need {kind.bits} bits, the most is {MAX_BITS}")
    if kind.most > MAX_LENGTH:
        raise ConditionError(f"a tuple may have {_count(kind.most)} elements, the most is {MAX_LENGTH}")
    return kind


def _count(n: int) -> str:
    return str(n) if n < 2**64 else f"2^{n.bit_length() - 1}"


def _tuple(elements: list[Kind]) -> Kind:
    bounds = [n for kind in elements for n in (kind.low, kind.high)]
    return _bounded(Kind("tuple", min(bounds, default=0), max(bounds, default=0), len(elements), len(elements)))


def _element(values: Kind, index: Kind) -> Kind:
    if index.low >= values.most or index.high < -values.most:
        raise ConditionError(f"index {_count(max(index.low, -index.high))} is outside a tuple of {values.most}")
    return Kind("int", values.low, values.high)


def _compared(kinds: list[Kind]) -> Kind:
    if any((a.name == "tuple") != (b.name == "tuple") for a, b in pairwise(kinds)):
        raise ConditionError("a tuple compares with tuples only; use len, min, max or an index")
    return BOOL


def _joined(kinds: list[Kind]) -> Kind:
    """The union of these."""
    names = {kind.name for kind in kinds}
    if "tuple" in names and len(names) > 1:
        raise ConditionError("a choice is between tuples or between numbers")
    name = next(name for name in ("tuple", "float", "int", "bool") if name in names)
    low, high = min(kind.low for kind in kinds), max(kind.high for kind in kinds)
    return Kind(name, low, high, min(kind.least for kind in kinds), max(kind.most for kind in kinds))


def _unary(op: ast.unaryop, operand: Kind) -> Kind:
    if isinstance(op, ast.Not):
        return BOOL
    return FLOAT if operand.name == "float" else _int(-operand.low, -operand.high)


def _binary(op: ast.operator, a: Kind, b: Kind) -> Kind:
    if "tuple" in (a.name, b.name):
        return _of_tuples(op, a, b)
    if isinstance(op, ast.FloorDiv | ast.Mod) and b.is_zero:
        raise ConditionError("divides by zero")
    if "float" in (a.name, b.name):
        return FLOAT
    return _INT_OPERATORS[type(op)](a, b)


def _of_tuples(op: ast.operator, a: Kind, b: Kind) -> Kind:
    if isinstance(op, ast.Add) and a.name == b.name:
        joined = _joined([a, b])
        return _bounded(joined._replace(least=a.least + b.least, most=a.most + b.most))
    if isinstance(op, ast.Mult) and (times := {a.name: a, b.name: b}.get("int")):
        repeated = a if b is times else b
        least, most = repeated.least * max(0, times.low), repeated.most * max(0, times.high)
        return _bounded(repeated._replace(least=least, most=most))
    raise ConditionError("a tuple can be joined with a tuple by +, or repeated by a small int; use its elements")


def _product(a: Kind, b: Kind) -> Kind:
    return _int(*(x * y for x, y in product((a.low, a.high), (b.low, b.high))))


def _quotient(a: Kind, b: Kind) -> Kind:
    """A divisor never increases the magnitude, whichever way it rounds."""
    if b.is_zero:
        raise ConditionError("divides by zero")
    largest = max(abs(a.low), abs(a.high))
    return _int(0 if a.low >= 0 and b.low >= 0 else -largest, largest)


def _remainder(_: Kind, b: Kind) -> Kind:
    """It has the divisor's sign."""
    return _int(min(b.low, 0), max(b.high, 0))


def _multiple(a: Kind, b: Kind) -> Kind:
    if b.is_zero:
        raise ConditionError("divides by zero")
    largest = max(abs(a.low), abs(a.high)) + max(abs(b.low), abs(b.high))
    return _int(0 if a.low >= 0 and b.low >= 0 else -largest, largest)


_INT_OPERATORS: dict[type[ast.operator], Callable[[Kind, Kind], Kind]] = {
    ast.Add: lambda a, b: _int(a.low + b.low, a.high + b.high),
    ast.Sub: lambda a, b: _int(a.low - b.high, a.high - b.low),
    ast.Mult: _product,
    ast.FloorDiv: _quotient,
    ast.Mod: _remainder,
}


def _magnitude(operand: Kind) -> Kind:
    return FLOAT if operand.name == "float" else _int(0, abs(operand.low), abs(operand.high))


def _extreme(values: Kind) -> Kind:
    if not values.most:
        raise ConditionError("an empty tuple has no least and no largest element")
    return Kind("int", values.low, values.high)


def _prod(values: Kind) -> Kind:
    if (bits := values.bits * values.most) > MAX_BITS:
        raise ConditionError(f"an int may need {bits} bits, the most is {MAX_BITS}")
    largest = max(abs(values.low), abs(values.high), 1) ** values.most
    return _int(1, 0 if values.low >= 0 else -largest, largest)


def _axis(_: Kind, rank: Kind) -> Kind:
    return _int(0, max(rank.high - 1, 0))


_SIGNATURES: dict[str, tuple[tuple[str, ...], Callable[..., Kind]]] = {
    "len": (("tuple",), lambda of: _int(of.least, of.most)),
    "min": (("tuple",), _extreme),
    "max": (("tuple",), _extreme),
    "abs": (("number",), _magnitude),
    "prod": (("tuple",), _prod),
    "isfinite": (("number",), lambda _: BOOL),
    "is_mask": (("int", "int"), lambda mask, rank: BOOL),
    "is_suffix_mask": (("int", "int"), lambda mask, rank: BOOL),
    "mask_axes": (("int", "int"), lambda mask, rank: _bounded(Kind("tuple", 0, mask.bits, 0, mask.bits))),
    "normalize_axis": (("int", "int"), _axis),
    "ceil_div": (("int", "int"), _quotient),
    "round_up": (("int", "int"), _multiple),
    "bucket": (("int",), lambda of: of),
}
