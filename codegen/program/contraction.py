"""Sums of products of two arrays, which are not multiplied element by element: that would take far more memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from .reductions import is_discrete, reduce
from .space import Space
from .tree import Expr, Name, Reduce, factors_in, selected_terms


def has_axis(value: Any, dim: str, space: Space) -> bool:
    """Whether an array varies along a dim, of more than one cell."""
    (axis,) = space.axes((dim,))
    return np.ndim(value) > axis and np.shape(value)[axis] != 1


def is_contraction(a: Any, b: Any, dims: tuple[str, ...], space: Space, *, selected: bool = False) -> bool:
    """Whether sums of products of two arrays of floats, each of which varies where the other does not, are over `dims`
    of both, or of one where a condition selects terms: to multiply all their elements first would take far more
    memory."""
    shapes = np.shape(a), np.shape(b)
    if any(len(shape) != len(space.extents) for shape in shapes) or is_discrete(a) or is_discrete(b):
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
    alone = [d for d in dims if has_axis(a, d, space) != has_axis(b, d, space)]
    if not alone and any(has_axis(holds, d, space) for d in dims):
        return contracted(xp, xp.where(holds, a, 0.0), xp.where(holds, b, 0.0), dims, space)
    if not alone:
        return xp.where(holds, contracted(xp, a, b, dims, space), 0.0)
    (axis,), rest = space.axes(alone[:1]), tuple(d for d in dims if d != alone[0])

    def at(x: Any, index: int) -> Any:
        return x[(slice(None),) * axis + (slice(index, index + 1),)] if np.shape(x)[axis] > 1 else x

    parts = [_selected(xp, at(a, i), at(b, i), rest, space, at(holds, i)) for i in range(space.extents[alone[0]])]
    nothing = reduce(xp, "sum", 0.0 * (a * b), dims, space) if not parts else 0.0
    return sum(parts, nothing)
