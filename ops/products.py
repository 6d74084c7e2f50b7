"""Products of arrays of any rank, by the rules of NumPy's matmul."""

from __future__ import annotations

import sys
from functools import cache
from math import prod
from typing import Any

import baracuda.runtime as rt

from .function import Function


def matmul(a: Any, b: Any, *, stream: Any = None) -> Any:
    """``a @ b`` as `numpy.matmul` has it, of arrays of one element type, f16, bf16, f32 or f64.

    Shapes: a [..., m, k], b [..., k, n], whose axes before the last two broadcast; a vector is a row on the left and a
    column on the right. A row of the result has the same bits whatever the shapes of the rest. Arrays that cannot be
    seen in one batch without a copy are copied. Raises InvalidProblem for shapes that do not fit, and what `dense_gemm`
    does.
    """
    from baracuda.generated import DenseGemmPlan

    shapes = [DenseGemmPlan.viewed(array, name).shape for name, array in (("a", a), ("b", b))]
    if not all(shapes):
        got = f"got shapes {shapes[0]} and {shapes[1]}"
        raise rt.InvalidProblem(f"matmul: a number has no axis to multiply along, {got}")
    left, right = _matrix(a, shapes[0], row=True), _matrix(b, shapes[1], row=False)
    (*of_left, m, k), (*of_right, depth, n) = left.shape, right.shape
    if k != depth:
        raise rt.InvalidProblem(f"matmul: a has {k} columns, b {depth} rows; got shapes {shapes[0]} and {shapes[1]}")
    batch = _broadcast(of_left, of_right, shapes)
    product = _product()
    if len(shapes[1]) <= 2:  # one matrix for all: rows of the batch are rows
        y = product(left.reshape(1, prod(batch) * m, k), right.reshape(1, k, n), stream=stream)
    else:
        y = product(_one_batch(left, (*batch, m, k)), _one_batch(right, (*batch, k, n)), stream=stream)
    kept = [*batch, *([m] if len(shapes[0]) > 1 else []), *([n] if len(shapes[1]) > 1 else [])]
    return y.reshape(tuple(kept))


@cache
def _product() -> Function:
    from baracuda.generated import DenseGemmPlan

    return Function(DenseGemmPlan)


def _matrix(array: Any, shape: tuple[int, ...], *, row: bool) -> Any:
    if len(shape) > 1:
        return array
    return array.reshape(1, shape[0]) if row else array.reshape(shape[0], 1)


def _broadcast(a: list[int], b: list[int], shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    pairs = list(zip([1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        got = f"got shapes {shapes[0]} and {shapes[1]}"
        raise rt.InvalidProblem(f"matmul: axes before the last two do not broadcast, {got}")
    return tuple(y if x == 1 else x for x, y in pairs)


def _one_batch(array: Any, shape: tuple[int, ...]) -> Any:
    """An array as [batch, rows, columns]; one matrix for all has a batch of stride 0."""
    if tuple(array.shape) != shape:
        expand = getattr(array, "expand", None)  # torch's
        library = sys.modules[type(array).__module__.partition(".")[0]]
        array = expand(shape) if expand else library.broadcast_to(array, shape)
    return array if len(shape) == 3 else array.reshape(prod(shape[:-2]), *shape[-2:])
