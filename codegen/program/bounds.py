"""A tree read as arithmetic on arrays together with a bound on a kernel's rounding error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from baracuda.runtime.arrays.element import ELEMENTS

from .contraction import Contraction, contracted, has_axis, sides_of
from .evaluate import Values, wrapped
from .ops import OPS, NumPy
from .reductions import first_place, in_a_row, is_discrete, picked, reduce
from .space import Space
from .tree import Call, Cast, Const, Expr, Line, Name, Query, Read, Reduce, is_product


def _whole(value: Any) -> Any:
    """Ints as programs have them, of 64 bits, whatever an array of them holds."""
    return value if np.asarray(value).dtype.kind == "b" else np.asarray(value, np.int64)


def _is_power_of_two(value: Any) -> bool:
    return np.ndim(value) == 0 and bool(np.isfinite(value)) and abs(np.frexp(float(value))[0]) == 0.5


@dataclass(frozen=True, slots=True)
class Bounded:
    """A real value and how far a kernel's value may lie from it, both arrays; of a complex value, part by part."""

    value: Any
    error: Any


# Half the smallest number and the largest number of the element type with a given unit roundoff.
_RANGE = {
    row.unit_roundoff: (row.unit_roundoff * row.smallest_normal, float(ml_dtypes.finfo(row.numpy).max))  # type: ignore[no-untyped-call]
    for row in ELEMENTS.values()
    if row.numpy.kind in "fV"
}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a kernel computes: the accumulator's unit roundoff, the smallest thing it can round to, and its sums.

    `depth(dims, count)` is the number of roundings the longest chain of additions makes to sum `count` terms.
    `casts` gives the unit roundoff of each element type a program casts to. `split` is what a factor of a sum of
    products may lose beside a roundoff, where it is multiplied in parts that underflow. Factors below `least` count as
    that where the terms of a sum are cut off below the largest. `rounded` is the unit roundoff of what factors are
    rounded to.
    """

    unit_roundoff: float
    tiny: float
    depth: Callable[[tuple[str, ...], int], float]
    casts: Mapping[str, float]
    split: float = 0.0
    least: float = 0.0
    rounded: float = 0.0


def bound(lines: Iterable[Line], inputs: Mapping[str, Bounded], space: Space, how: Arithmetic) -> dict[str, Bounded]:
    """Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, section 3.3) of the program."""
    names = {n: Bounded(_whole(b.value), 0.0) if is_discrete(b.value) else b for n, b in inputs.items()}
    reader = _Bounds(names, space, how)
    with np.errstate(all="ignore"):
        for line in lines:
            names[line.name] = reader.read(line.expr)
    return names


class _Bounds:
    def __init__(self, names: dict[str, Bounded], space: Space, how: Arithmetic) -> None:
        self.names, self.space, self.how, self.xp = names, space, how, NumPy()

    def read(self, expr: Expr) -> Bounded:
        match expr:
            case Const(value=value):
                exact = is_discrete(value) or float(np.float32(value)) == value
                return Bounded(value, 0.0 if exact else abs(value) * self.how.unit_roundoff + self.how.tiny)
            case Name(id=name):
                return self.names[name]
            case Query():
                return Bounded(Values({}, self.space, self.xp).read(expr), 0.0)
            case Cast(to=to, arg=arg):
                return self._cast(self.how.casts[to], self._rounded_to_float(self.read(arg)))
            case Call(op=op, args=args):
                return self._call(op, [self.read(a) for a in args])
            case Reduce(kind="sum", dims=dims) if c := Contraction.of(expr, self.names, self._value, self.space):
                factors, weights = [self.names[name] for name in c.factors], [self.read(w) for w in c.weights]
                placed = sides_of([w.value for w in weights], [factor.value for factor in factors])
                if placed is None:
                    return self._reduce("sum", self.read(expr.arg), dims)
                holds = None if c.condition is None else self.read(c.condition).value
                return self._contraction(factors, list(zip(placed, weights, strict=True)), dims, holds)
            case Reduce(kind="sum", arg=arg, dims=dims) if is_product(expr):
                return self._reduce("sum", self._of_rounded(self.read(arg)), dims)
            case Reduce(kind="mean", dims=dims) if self._is_multiplied(whole := replace(expr, kind="sum")):
                return self._call("div", [self.read(whole), Bounded(float(self.space.count(dims)), 0.0)])
            case Reduce(kind=kind, arg=arg, dims=dims):
                return self._reduce(kind, self.read(arg), dims)
            case Read(tensor=tensor, dims=dims, places=places, outside=outside):
                return self._read(self.names[tensor], dims, [self.read(p) for p in places], self.read(outside))
        raise AssertionError(expr)

    def _is_multiplied(self, total: Reduce) -> bool:
        """Whether it is a sum of products of which matrix instructions take factors that are rounded or split."""
        return bool(self.how.rounded or self.how.split) and is_product(total)

    def _of_rounded(self, terms: Bounded) -> Bounded:
        """Products of two factors that are rounded first."""
        twice = self.how.rounded * (2 + self.how.rounded)
        return Bounded(terms.value, terms.error + twice * (np.abs(terms.value) + terms.error)) if twice else terms

    def _value(self, name: str) -> Any:
        return self.names[name].value

    def _read(self, array: Bounded, dims: tuple[str, ...], places: list[Bounded], outside: Bounded) -> Bounded:
        """What lies elsewhere may be anything, so a place that is uncertain makes the value so."""
        inside, found = picked(self.xp, array.value, dims, [p.value for p in places], self.space)
        wholes = np.broadcast_to(array.error, np.shape(array.value))
        error = np.where(inside, picked(self.xp, wholes, dims, [p.value for p in places], self.space)[1], outside.error)
        for place in places:
            error = np.where(np.asarray(place.error) > 0, np.inf, error)
        return Bounded(np.where(inside, found, outside.value), error)

    def _cast(self, unit_roundoff: float, arg: Bounded) -> Bounded:
        tiny, largest = _RANGE.get(unit_roundoff, (0.0, np.inf))  # a reference's casts round nothing
        most = np.abs(arg.value) + arg.error
        error = arg.error + unit_roundoff * most + tiny
        return Bounded(arg.value, np.where(most > largest, np.inf, error))

    def _rounded_to_float(self, arg: Bounded) -> Bounded:
        """A whole number becomes one of the accumulator's type, which holds those below 1 / u exactly."""
        if not is_discrete(arg.value):
            return arg
        size = np.abs(1.0 * arg.value)
        u = self.how.unit_roundoff
        return Bounded(1.0 * arg.value, arg.error + np.where(size > 1 / u, u * size, 0.0))

    def _call(self, op: str, args: list[Bounded]) -> Bounded:
        row = OPS[op]
        values = args[1:] if op == "where" else args
        if row.kind == "float" or not all(is_discrete(a.value) for a in values):
            args = [*args[: len(args) - len(values)], *map(self._rounded_to_float, values)]
        result = wrapped(row.numpy(self.xp, *(a.value for a in args)))
        errors = [a.error for a in args]
        moved: Any = 0.0
        if row.spread is not None and any(np.any(np.asarray(e) != 0) for e in errors):
            moved = row.spread(self.xp, result, [a.value for a in args], errors)
            moved = np.where(np.isnan(moved), np.inf, moved)
        if not row.rounding or is_discrete(result):
            return Bounded(result, moved)
        if op == "mul" and any(_is_power_of_two(a.value) for a in args):  # exact, but where it becomes subnormal
            lost = (np.abs(result) < self.how.tiny / self.how.unit_roundoff) & (result != 0)
            return Bounded(result, moved + np.where(lost, self.how.tiny, 0.0))
        return Bounded(result, moved + row.rounding * self.how.unit_roundoff * (np.abs(result) + moved) + self.how.tiny)

    def _reduce(self, kind: str, arg: Bounded, dims: tuple[str, ...]) -> Bounded:
        if kind in ("argmax", "argmin"):
            return self._place(kind, arg, dims)
        if kind in ("any", "all"):
            return self._decided(kind, arg, dims)
        if kind in ("mean", "var"):
            arg = self._rounded_to_float(arg)
        result = reduce(self.xp, kind, arg.value, dims, self.space)
        error = np.asarray(arg.error, np.float64)
        if kind in ("max", "min"):
            return Bounded(result, reduce(self.xp, "max", np.maximum(error, 0), dims, self.space))
        if is_discrete(result):  # exact, unless a term is in doubt
            return Bounded(result, np.where(reduce(self.xp, "max", error, dims, self.space) > 0, np.inf, 0.0))
        if kind == "prod":
            return self._product(result, arg, dims)
        if kind == "var":
            return self._variance(result, arg, dims)
        count = self.space.count(dims)
        total = reduce(self.xp, "sum", np.abs(arg.value) + arg.error, dims, self.space)
        error = reduce(self.xp, "sum", arg.error, dims, self.space)
        error = error + self.how.depth(dims, count) * self.how.unit_roundoff * total
        if kind == "mean":
            error = error / max(count, 1)
            error = error + self.how.unit_roundoff * (np.abs(result) + error) + self.how.tiny
        return Bounded(result, error)

    def _contraction(
        self, factors: list[Bounded], weights: list[tuple[int, Bounded]], dims: tuple[str, ...], holds: Any
    ) -> Bounded:
        """A sum of products, none of which is rounded alone, where a condition `holds` if there is one.

        Each of the `weights`, with the number of the factor that varies as it does, is rounded with what it multiplies.
        """
        a, b = factors

        def sums(x: Any, y: Any) -> Any:
            full = np.broadcast_to(x, np.shape(a.value)), np.broadcast_to(y, np.shape(b.value))
            return contracted(self.xp, *full, dims, self.space, holds)

        values, sizes = [a.value, b.value], [np.abs(a.value), np.abs(b.value)]
        errors = [np.asarray(of.error, np.float64) + self.how.split for of in factors]
        errors = [error + self.how.rounded * (size + error) for error, size in zip(errors, sizes, strict=True)]
        most = [size + self.how.least for size in sizes]
        tiny = self.how.tiny * (sums(*most) if weights else 1.0)  # of weights, times what they multiply
        for side, weight in weights:
            weight = self._rounded_to_float(weight)
            size = np.abs(weight.value)
            values[side] = values[side] * weight.value
            errors[side] = errors[side] * (size + weight.error) + sizes[side] * weight.error
            sizes[side], most[side] = sizes[side] * size, most[side] * (size + weight.error)
        moved = sums(sizes[0] + errors[0], errors[1]) + sums(errors[0], sizes[1])
        moved = np.where(np.isnan(moved), np.inf, moved)  # 0 times a factor in any doubt
        one = [dim for dim in dims if self.space.count((dim,)) == 1]  # of which no array shows whether it is along it
        along = tuple(dim for dim in dims if dim in one or all(has_axis(of.value, dim, self.space) for of in (a, b)))
        count = self.space.count(along)
        if chosen := tuple(dim for dim in dims if holds is not None and has_axis(holds, dim, self.space)):
            most_chosen = int(np.max(np.sum(holds, axis=self.space.axes(chosen)), initial=0))
            count = most_chosen * self.space.count(dim for dim in dims if dim not in chosen)
            along = along if count <= self.space.count(along) else dims
        roundings = self.how.depth(along, count) + len(weights)
        lost = roundings * self.how.unit_roundoff * (sums(*most) + moved) + count * self.how.tiny
        return Bounded(sums(*values), moved + lost + len(weights) * tiny)

    def _variance(self, result: Any, arg: Bounded, dims: tuple[str, ...]) -> Bounded:
        """Of parts with a mean each, which are joined along a tree of some depth.

        A distance of two means is off by what these are off by. The distances, each times the root of
        n1 n2 / (n1 + n2), have the squares of the result as theirs; by Cauchy and Schwarz their errors, so weighted,
        are as long as all elements times u at each level of the tree. Levels round independently of one another
        (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019), so they add as squares do; but
        equal numbers may all be off by the same, whose square counts in full.
        """
        count, u = self.space.count(dims), self.how.unit_roundoff
        depth = self.how.depth(dims, count)
        error = np.asarray(arg.error, np.float64) + np.zeros(self.space.shape(dims))
        of_inputs = np.sqrt(reduce(self.xp, "sum", error * error, dims, self.space))
        length = np.sqrt(reduce(self.xp, "sum", np.square(np.abs(arg.value) + error), dims, self.space))
        moved = of_inputs + np.sqrt(depth + 1) * u * length
        squares = np.maximum(np.asarray(result, np.float64), 0.0) * count
        total = 2 * moved * np.sqrt(squares) + np.square(of_inputs + (depth + 1) * u * length)
        total = total + (depth + 4) * u * (squares + total)
        return Bounded(result, total / max(count, 1) + u * np.abs(result) + self.how.tiny)

    def _place(self, kind: str, arg: Bounded, dims: tuple[str, ...]) -> Bounded:
        """Another place may come out where a value there may be as extreme as the one found."""
        result = first_place(kind, np.asarray(arg.value), dims, self.space)
        error = np.broadcast_to(np.asarray(arg.error, np.float64), np.shape(arg.value))
        if not np.any(error) or not self.space.count(dims):
            return Bounded(result, 0.0)
        values, errors = (in_a_row(np.asarray(a), dims, self.space) for a in (arg.value, error))
        values = values if kind == "argmax" else -values
        found = np.argmax(values, axis=-1)[..., None]
        best, moved = np.take_along_axis(values, found, -1), np.take_along_axis(errors, found, -1)
        rival = (values + errors >= best - moved) & (errors + moved > 0)
        rival &= np.arange(values.shape[-1]) != found
        return Bounded(result, np.where(rival.any(axis=-1), np.inf, 0.0).reshape(result.shape))

    def _decided(self, kind: str, arg: Bounded, dims: tuple[str, ...]) -> Bounded:
        """1 where what is in doubt decides."""
        result = reduce(self.xp, kind, arg.value, dims, self.space)
        doubt = np.asarray(arg.error) > 0
        other = reduce(self.xp, kind, arg.value & ~doubt if kind == "any" else arg.value | doubt, dims, self.space)
        most = reduce(self.xp, kind, arg.value | doubt if kind == "any" else arg.value & ~doubt, dims, self.space)
        return Bounded(result, np.where(other != most, 1.0, 0.0))

    def _product(self, result: Any, arg: Bounded, dims: tuple[str, ...]) -> Bounded:
        """Each factor but 1 is rounded once; what is lost to underflow may grow by the factors above 1 that follow."""
        size, u = np.abs(arg.value), self.how.unit_roundoff
        rounds = np.where((arg.value == 1) & (np.asarray(arg.error) == 0), 0.0, 1.0)
        count = reduce(self.xp, "sum", rounds, dims, self.space)
        most = reduce(self.xp, "prod", size + arg.error, dims, self.space)
        grown = reduce(self.xp, "prod", np.maximum(size + arg.error, 1.0), dims, self.space)
        slack = 2 if np.any(np.asarray(arg.error) > 0) else 1.01  # then `most` is rounded, too
        rounded = most * np.expm1(slack * count * u)
        error = np.maximum(most - np.abs(result), 0.0) + rounded + count * self.how.tiny * grown
        return Bounded(result, np.where(grown > 1 / (self.how.tiny + 1e-300), np.inf, error))
