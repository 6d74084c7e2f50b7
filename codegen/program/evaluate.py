"""A tree read as arithmetic on arrays: plain values, or values together with a bound on a kernel's rounding error.

Arrays have one axis per dim of the scope, in the scope's order, with extent 1 where a value does not vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np

from baracuda.runtime.arrays.element import ELEMENTS

from .ops import OPS, NumPy
from .tree import Call, Cast, Const, Expr, Line, Name, Query, Read, Reduce, factors_in, selected_terms


@dataclass(frozen=True, slots=True)
class Space:
    """The problem a program is evaluated on: the extent of each dim, which optional tensors are there.

    `real` is the type of constants: sqrt(2.0) of a long double program has all its bits.
    """

    extents: dict[str, int]
    present: frozenset[str] = frozenset()
    real: type = float

    def axes(self, dims: Iterable[str]) -> tuple[int, ...]:
        names = list(self.extents)
        return tuple(names.index(d) for d in dims)

    def shape(self, dims: Iterable[str]) -> tuple[int, ...]:
        kept_dims = set(dims)
        return tuple(n if d in kept_dims else 1 for d, n in self.extents.items())

    def index(self, dim: str) -> Any:
        return np.arange(self.extents[dim]).reshape(self.shape([dim]))

    def count(self, dims: Iterable[str]) -> int:
        return int(np.prod([self.extents[d] for d in dims], dtype=object))


def evaluate(
    lines: Iterable[Line], inputs: Mapping[str, Any], space: Space, xp: Any = None
) -> dict[str, Any]:
    """Return every name's value; `xp` is a NumPy-like module (autograd's, to differentiate)."""
    names = dict(inputs)
    reader = _Values(names, space, xp or NumPy())
    with np.errstate(all="ignore"):
        for line in lines:
            names[line.name] = reader.read(line.expr)
    return names


class _Values:
    def __init__(self, names: dict[str, Any], space: Space, xp: Any) -> None:
        self.names, self.space, self.xp = names, space, xp

    def read(self, expr: Expr) -> Any:
        match expr:
            case Const(value=value):
                return self.space.real(value) if isinstance(value, float) else value
            case Name(id=name):
                return self.names[name]
            case Query(what="present", of=of):
                return of in self.space.present
            case Query(what="size", of=of):
                return self.space.extents[of]
            case Query(of=of):
                return self.space.index(of)
            case Cast(arg=arg):
                return _real(self.read(arg))
            case Call(op=op, args=args):
                return self._call(op, [self.read(a) for a in args])
            case Reduce(kind="sum", dims=dims) if c := Contraction.of(expr, self.names, self.names.get, self.space):
                sides, weights = [self.names[name] for name in c.factors], [self.read(w) for w in c.weights]
                if (placed := sides_of(weights, sides)) is None:
                    return reduce(self.xp, "sum", self.read(expr.arg), dims, self.space)
                for side, weight in zip(placed, weights, strict=True):
                    sides[side] = sides[side] * weight
                holds = None if c.condition is None else self.read(c.condition)
                return contracted(self.xp, sides[0], sides[1], dims, self.space, holds)
            case Reduce(kind=kind, arg=arg, dims=dims):
                return reduce(self.xp, kind, self.read(arg), dims, self.space)
            case Read(tensor=tensor, dims=dims, places=places, outside=outside):
                inside, found = picked(self.xp, self.names[tensor], dims, [self.read(p) for p in places], self.space)
                return self.xp.where(inside, found, self.read(outside))
        raise AssertionError(expr)

    def _call(self, op: str, args: list[Any]) -> Any:
        row = OPS[op]
        return _wrapped(row.numpy(self.xp, *(map(_real, args) if row.kind == "float" else args)))


def _has_axis(value: Any, dim: str, space: Space) -> bool:
    """Whether an array varies along a dim, of more than one cell."""
    (axis,) = space.axes((dim,))
    return np.ndim(value) > axis and np.shape(value)[axis] != 1


def _is_discrete(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)  # an array of autograd's takes long to become one of NumPy's
    return (np.asarray(value).dtype if dtype is None else dtype).kind in "biu"


def _whole(value: Any) -> Any:
    """Ints as programs have them, of 64 bits, whatever an array of them holds."""
    return value if np.asarray(value).dtype.kind == "b" else np.asarray(value, np.int64)


def _is_power_of_two(value: Any) -> bool:
    return np.ndim(value) == 0 and bool(np.isfinite(value)) and abs(np.frexp(float(value))[0]) == 0.5


def _wrapped(value: Any) -> Any:
    """Python's whole numbers have no end, a kernel's have 64 bits."""
    return np.int64((value + 2**63) % 2**64 - 2**63) if type(value) is int else value


def _real(value: Any) -> Any:
    """`value` as a floating-point number, its type kept if it is one."""
    is_float = isinstance(value, float) or getattr(value, "dtype", np.dtype(int)).kind in "fc"
    return value if is_float else 1.0 * value


def reduce(xp: Any, kind: str, value: Any, dims: tuple[str, ...], space: Space) -> Any:
    """Reduce over `dims`, keeping the axes; max and min of nothing are the least and the largest value there is."""
    if kind in ("any", "all"):
        return getattr(np, kind)(value | np.zeros(space.shape(dims), bool), axis=space.axes(dims), keepdims=True)
    if kind in ("argmax", "argmin"):
        return _place(kind, getattr(xp, "stop_gradient", np.asarray)(value), dims, space)
    if _is_discrete(value) and kind not in ("mean", "var"):
        whole = np.asarray(value, np.int64) + np.zeros(space.shape(dims), np.int64)
        limits = {"max": np.iinfo(np.int64).min, "min": np.iinfo(np.int64).max}
        initial = {"initial": limits[kind]} if kind in limits else {}
        return getattr(np, kind)(whole, axis=space.axes(dims), keepdims=True, **initial)
    if isinstance(value, int | float):  # Python's numbers would take on the type of the zeros
        value = np.longdouble(value)
    value = value + np.zeros(space.shape(dims), np.float32)  # of no type's precision
    axes = space.axes(dims)
    if kind in ("max", "min") and not space.count(dims):
        empty = -np.inf if kind == "max" else np.inf
        return np.full([1 if i in axes else n for i, n in enumerate(value.shape)], empty)
    if kind in ("mean", "var"):
        mean = xp.sum(value, axis=axes, keepdims=True) / float(space.count(dims))
        if kind == "mean":
            return mean
        away = value - getattr(xp, "stop_gradient", np.asarray)(mean)  # around which the slopes add up to 0
        return xp.sum(away * away, axis=axes, keepdims=True) / float(space.count(dims))
    return getattr(xp, kind)(value, axis=axes, keepdims=True)


def is_contraction(a: Any, b: Any, dims: tuple[str, ...], space: Space, *, selected: bool = False) -> bool:
    """Whether sums of products of two arrays of floats, each of which varies where the other does not, are over `dims`
    of both, or of one where a condition selects terms: to multiply all their elements first would take far more
    memory."""
    shapes = np.shape(a), np.shape(b)
    if any(len(shape) != len(space.extents) for shape in shapes) or _is_discrete(a) or _is_discrete(b):
        return False
    own = [[n > 1 and m == 1 for n, m in zip(*pair, strict=True)] for pair in (shapes, shapes[::-1])]
    axes = dict(zip(space.axes(dims), (space.extents[dim] for dim in dims), strict=True))
    shared = any if selected else all
    return all(map(any, own)) and all(shared(shape[axis] == n for shape in shapes) for axis, n in axes.items())


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products of two arrays, by their names, of what else is multiplied, and of where terms count."""

    factors: tuple[str, str]
    weights: tuple[Expr, ...]
    condition: Expr | None

    @classmethod
    def of(
        cls, expr: Reduce, names: Iterable[str], value: Callable[[str], Any], space: Space
    ) -> Contraction | None:
        """The first two factors that are one by `is_contraction`, in the order of `names`."""
        condition, terms = selected_terms(expr)
        parts = factors_in(terms) if terms is not None else ()
        if len(parts) < 2:
            return None
        multiplied = {part.id for part in parts if isinstance(part, Name)}
        known = [name for name in names if name in multiplied]
        for pair in combinations(known, 2):
            x, y = (value(name) for name in pair)
            if is_contraction(x, y, expr.dims, space, selected=condition is not None):
                a, b = sorted(map(Name, pair), key=parts.index)
                rest = [*parts]
                rest.remove(a)
                rest.remove(b)
                return cls((a.id, b.id), tuple(rest), condition)
        return None


def sides_of(weights: Iterable[Any], factors: Iterable[Any]) -> list[int] | None:
    """Which of two factors varies along all that each weight does; None if one has no such factor."""
    shapes = [np.shape(factor) for factor in factors]
    found = []
    for weight in weights:
        own = (1,) * (len(shapes[0]) - np.ndim(weight)) + np.shape(weight)
        fits = [all(m in (1, n) for m, n in zip(own, shape, strict=True)) for shape in shapes]
        side = fits.index(True) if True in fits else None
        if side is None:
            return None
        found.append(side)
    return found


def contracted(xp: Any, a: Any, b: Any, dims: tuple[str, ...], space: Space, holds: Any = None) -> Any:
    """The sum over `dims` of the products of two arrays, with axes of extent 1 for these, where a condition `holds`."""
    if holds is not None:
        return _selected(xp, a, b, dims, space, holds)
    letters, gone = "abcdefghijklmnopqrstuvwxyz"[: len(space.extents)], space.axes(dims)
    shapes = np.shape(a), np.shape(b)
    varies = [[axis for axis, n in enumerate(shape) if n != 1] for shape in shapes]
    inputs = ["".join(letters[axis] for axis in axes) for axes in varies]
    kept = [axis for axis in range(len(letters)) if axis not in gone and any(axis in axes for axes in varies)]
    flat = [xp.reshape(x, [np.shape(x)[axis] for axis in axes]) for x, axes in zip((a, b), varies, strict=True)]
    result = xp.einsum(f"{','.join(inputs)}->{''.join(letters[axis] for axis in kept)}", *flat)
    extents = [next((s[axis] for s in shapes if axis in kept and s[axis] != 1), 1) for axis in range(len(letters))]
    return xp.reshape(result, extents)


def _selected(xp: Any, a: Any, b: Any, dims: tuple[str, ...], space: Space, holds: Any) -> Any:
    """Along a dim that only one of them has, one index after the other is taken."""
    alone = [d for d in dims if _has_axis(a, d, space) != _has_axis(b, d, space)]
    if not alone and any(_has_axis(holds, d, space) for d in dims):
        return contracted(xp, xp.where(holds, a, 0.0), xp.where(holds, b, 0.0), dims, space)
    if not alone:
        return xp.where(holds, contracted(xp, a, b, dims, space), 0.0)
    (axis,), rest = space.axes(alone[:1]), tuple(d for d in dims if d != alone[0])

    def at(x: Any, index: int) -> Any:
        return x[(slice(None),) * axis + (slice(index, index + 1),)] if np.shape(x)[axis] > 1 else x

    parts = [_selected(xp, at(a, i), at(b, i), rest, space, at(holds, i)) for i in range(space.extents[alone[0]])]
    nothing = reduce(xp, "sum", 0.0 * (a * b), dims, space) if not parts else 0.0
    return sum(parts, nothing)


def picked(xp: Any, array: Any, dims: tuple[str, ...], places: list[Any], space: Space) -> tuple[Any, Any]:
    """Whether each of the `places` along `dims` is inside of an array over them, and the elements there."""
    axes = space.axes(dims)
    by_dim = xp.transpose(array, [*axes, *(i for i in range(len(space.extents)) if i not in axes)])
    by_dim = xp.reshape(by_dim, [space.extents[dim] for dim in dims])
    flat = np.ones((1,) * len(space.extents), bool)
    places = [np.asarray(place, np.int64) + np.zeros(flat.shape, np.int64) for place in places]
    inside = flat
    for dim, place in zip(dims, places, strict=True):
        inside = inside & (place >= 0) & (place < space.extents[dim])
    if 0 in by_dim.shape:
        return inside, np.zeros(inside.shape, by_dim.dtype)
    return inside, by_dim[tuple(np.where(inside, place, 0) for place in places)]


def _place(kind: str, value: Any, dims: tuple[str, ...], space: Space) -> Any:
    """The first extreme's place along `dims`, the last of them fastest; a NaN is one; -1 where there is nothing."""
    value = _in_a_row(value, dims, space)
    if not value.shape[-1]:
        return np.full(_kept_shape(value.shape[:-1], dims, space), -1)
    return getattr(np, kind)(value, axis=-1).reshape(_kept_shape(value.shape[:-1], dims, space))


def _in_a_row(value: Any, dims: tuple[str, ...], space: Space) -> Any:
    """`value` with one last axis for the cells of `dims`."""
    axes = space.axes(dims)
    value = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), space.shape(dims)))
    kept = [axis for axis in range(value.ndim) if axis not in axes]
    count = space.count(dims)
    return value.transpose(*kept, *axes).reshape(*(value.shape[axis] for axis in kept), count)


def _kept_shape(shape: tuple[int, ...], dims: tuple[str, ...], space: Space) -> list[int]:
    """`shape` with axes of extent 1 for `dims`."""
    axes, kept = space.axes(dims), iter(shape)
    return [1 if axis in axes else next(kept) for axis in range(len(space.extents))]


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
    that where the terms of a sum are cut off below the largest.
    """

    unit_roundoff: float
    tiny: float
    depth: Callable[[tuple[str, ...], int], float]
    casts: Mapping[str, float]
    split: float = 0.0
    least: float = 0.0


def bound(
    lines: Iterable[Line], inputs: Mapping[str, Bounded], space: Space, how: Arithmetic
) -> dict[str, Bounded]:
    """Running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, section 3.3) of the program."""
    names = {n: Bounded(_whole(b.value), 0.0) if _is_discrete(b.value) else b for n, b in inputs.items()}
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
                exact = _is_discrete(value) or float(np.float32(value)) == value
                return Bounded(value, 0.0 if exact else abs(value) * self.how.unit_roundoff + self.how.tiny)
            case Name(id=name):
                return self.names[name]
            case Query():
                return Bounded(_Values({}, self.space, self.xp).read(expr), 0.0)
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
            case Reduce(kind=kind, arg=arg, dims=dims):
                return self._reduce(kind, self.read(arg), dims)
            case Read(tensor=tensor, dims=dims, places=places, outside=outside):
                return self._read(self.names[tensor], dims, [self.read(p) for p in places], self.read(outside))
        raise AssertionError(expr)

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
        if not _is_discrete(arg.value):
            return arg
        size = np.abs(1.0 * arg.value)
        u = self.how.unit_roundoff
        return Bounded(1.0 * arg.value, arg.error + np.where(size > 1 / u, u * size, 0.0))

    def _call(self, op: str, args: list[Bounded]) -> Bounded:
        row = OPS[op]
        values = args[1:] if op == "where" else args
        if row.kind == "float" or not all(_is_discrete(a.value) for a in values):
            args = [*args[: len(args) - len(values)], *map(self._rounded_to_float, values)]
        result = _wrapped(row.numpy(self.xp, *(a.value for a in args)))
        errors = [a.error for a in args]
        moved: Any = 0.0
        if row.spread is not None and any(np.any(np.asarray(e) != 0) for e in errors):
            moved = row.spread(self.xp, result, [a.value for a in args], errors)
            moved = np.where(np.isnan(moved), np.inf, moved)
        if not row.rounding or _is_discrete(result):
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
        if _is_discrete(result):  # exact, unless a term is in doubt
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
        along = tuple(dim for dim in dims if all(_has_axis(of.value, dim, self.space) for of in (a, b)))
        count = self.space.count(along)
        if chosen := tuple(dim for dim in dims if holds is not None and _has_axis(holds, dim, self.space)):
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
        result = _place(kind, np.asarray(arg.value), dims, self.space)
        error = np.broadcast_to(np.asarray(arg.error, np.float64), np.shape(arg.value))
        if not np.any(error) or not self.space.count(dims):
            return Bounded(result, 0.0)
        values, errors = (_in_a_row(np.asarray(a), dims, self.space) for a in (arg.value, error))
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
