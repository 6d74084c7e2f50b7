"""jax.vmap of an op: one call with a larger batch where the op has one, else a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import baracuda.runtime as rt

from .call import Call

BATCH = "batch_size"  # the field whose parts do not know of each other, the first axis of what has it


def batched(primitive: Any, arrays: Sequence[Any], axes: Sequence[int | None], *, call: Call) -> Any:
    """The batching rule of an op's primitive; results are mapped along their first axis."""
    size = next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)
    front = [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(arrays, axes, strict=True)]
    mapped = frozenset(n for n, axis in zip(call.present, axes, strict=True) if axis is not None)
    results = _at_once(primitive, call, front, mapped, size) or _one_by_one(primitive, call, front, mapped)
    return results, [0] * len(results)


def _one_by_one(primitive: Any, call: Call, arrays: Sequence[Any], mapped: frozenset[str]) -> Any:
    named = dict(zip(call.present, arrays, strict=True))
    each = {name: array for name, array in named.items() if name in mapped}
    return jax.lax.map(lambda part: primitive.bind(*{**named, **part}.values(), call=call), each)


def _at_once(primitive: Any, call: Call, arrays: Sequence[Any], mapped: frozenset[str], size: int) -> Any:
    """The result of one call with a larger batch; None if the parts need separate copies of something the
    op has once.
    """
    if (larger := _larger(call, mapped, size)) is None:
        return None
    before, after = call.plan.shapes_of(call.descriptor), call.plan.shapes_of(larger)
    operands = []
    for name, array in zip(call.present, arrays, strict=True):
        shape = array.shape[1:] if name in mapped else array.shape
        batched_shape = after[name][before[name].index(shape)] if shape in before[name] else None
        if batched_shape in _grown(shape, size):
            stacked = array if name in mapped else jnp.broadcast_to(array, (size, *shape))
            operands.append(stacked.reshape(batched_shape))
        elif name not in mapped and batched_shape == shape:
            operands.append(array)
        else:
            return None
    if any(after[name][0] not in _grown(before[name][0], size) for name in call.names):
        return None
    results = primitive.bind(*operands, call=replace(call, descriptor=larger))
    return [array.reshape(size, *before[name][0]) for name, array in zip(call.names, results, strict=True)]


def _grown(shape: tuple[int, ...], size: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of `size` stacked arrays."""
    return ((size, *shape), (size * shape[0], *shape[1:])) if shape else ((size,),)


def _larger(call: Call, mapped: frozenset[str], size: int) -> Any:
    """The descriptor of `size` calls as one; None if unknown."""
    descriptor: Any = call.descriptor
    try:
        if descriptor._any_rank:
            return descriptor._stacked(size)
        if BATCH not in descriptor._types:
            return None
        fields = {e.field for e in call.plan.EXTENTS if e.axis == 0 and e.tensor in mapped} | {BATCH}
        larger = replace(descriptor, **{name: size * getattr(descriptor, name) for name in fields})
        larger.check()
    except rt.BaracudaError:  # more axes than there may be, or parts of a batch that belong together
        return None
    return larger
