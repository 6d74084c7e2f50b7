"""Reductions of arrays over dims, and reads at computed places."""

from __future__ import annotations

from typing import Any

import numpy as np

from .space import Space


def is_discrete(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)  # an array of autograd's takes long to become one of NumPy's
    return (np.asarray(value).dtype if dtype is None else dtype).kind in "biu"


def reduce(xp: Any, kind: str, value: Any, dims: tuple[str, ...], space: Space) -> Any:
    """Reduce over `dims`, keeping the axes; max and min of nothing are the least and the largest value there is."""
    if kind in ("any", "all"):
        return getattr(np, kind)(value | np.zeros(space.shape(dims), bool), axis=space.axes(dims), keepdims=True)
    if kind in ("argmax", "argmin"):
        return first_place(kind, getattr(xp, "stop_gradient", np.asarray)(value), dims, space)
    if is_discrete(value) and kind not in ("mean", "var"):
        whole = np.asarray(value, np.int64) + np.zeros(space.shape(dims), np.int64)
        limits = {"max": np.iinfo(np.int64).min, "min": np.iinfo(np.int64).max}
        initial = {"initial": limits[kind]} if kind in limits else {}
        return getattr(np, kind)(whole, axis=space.axes(dims), keepdims=True, **initial)
    if isinstance(value, int | float):  # Python's numbers would take on the type of the zeros
        value = np.longdouble(value)
    if is_discrete(value):
        value = np.asarray(value, space.real)
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


def first_place(kind: str, value: Any, dims: tuple[str, ...], space: Space) -> Any:
    """The first extreme's place along `dims`, the last of them fastest; a NaN is one; -1 where there is nothing."""
    value = in_a_row(value, dims, space)
    if not value.shape[-1]:
        return np.full(_kept_shape(value.shape[:-1], dims, space), -1)
    return getattr(np, kind)(value, axis=-1).reshape(_kept_shape(value.shape[:-1], dims, space))


def in_a_row(value: Any, dims: tuple[str, ...], space: Space) -> Any:
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
