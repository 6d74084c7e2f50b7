"""Dims of a map that share out the axes of a shape, on the host device, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda import ops
from baracuda.codegen.spec.load import load_spec
from baracuda.generated import ReduceAxesArgDescriptor, ReduceAxesDescriptor, ReduceAxesPlan

SPEC = """\
op: total
family: map
doc: A sum.
descriptor: {mask: {type: int, doc: which axes}}
dims: {kept: rest, cell: "mask_axes(mask, len(input_shape))"}
inputs: [x]
outputs: {y: {dims: [kept]}}
program: y = sum(x, cell)
reference: y = sum(x, cell)
"""


def gone(mask: int, rank: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(rank) if mask >> axis & 1)


@pytest.mark.parametrize("mask", range(16))
def test_any_axes_of_any_layout(mask: int) -> None:
    x = np.random.default_rng(mask).standard_normal((5, 3, 4, 2)).transpose(2, 0, 3, 1)
    assert np.allclose(ops.reduce_axes(x, kind="sum", axes_mask=mask), x.sum(gone(mask, 4)))
    assert np.array_equal(ops.reduce_axes(x[::-1, ::2], kind="max", axes_mask=mask), x[::-1, ::2].max(gone(mask, 4)))
    descriptor = ReduceAxesDescriptor(kind="sum", input_shape=x.shape, axes_mask=mask, element="f64")
    kept = tuple(n for axis, n in enumerate(x.shape) if axis not in gone(mask, 4))
    assert ReduceAxesPlan.select(descriptor).shapes() == {"x": (x.shape,), "y": (kept,)}


def test_places_count_the_reduced_axes_in_order() -> None:
    x = np.random.default_rng(0).integers(0, 9, (4, 3, 5)).astype(np.float32)
    at = ops.reduce_axes_arg(x, kind="argmax", axes_mask=0b101)
    assert np.array_equal(at, x.transpose(1, 0, 2).reshape(3, -1).argmax(-1))
    assert ops.reduce_axes_arg(x, kind="argmin", axes_mask=0b111).shape == ()


def test_places_of_no_cells_and_of_nans() -> None:
    x = np.array([[1, np.nan, np.nan], [2, 2, 1]], np.float32)
    assert np.array_equal(ops.reduce_axes_arg(x, kind="argmin", axes_mask=2), [1, 2])
    assert np.array_equal(ops.reduce_axes_arg(x[:, :0], kind="argmin", axes_mask=2), [-1, -1])


@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_of_equal_numbers_the_first_is_found(kind: str, element: str) -> None:
    """Zeros of either sign are equal, and so are infinities that no number exceeds."""
    rows = [[-0.0, 0.0, -0.0, 0.0], [0.0, -0.0, 0.0, -0.0], [-np.inf] * 4, [np.inf] * 4, [1.0, 2.0, 2.0, 1.0]]
    x = np.array(rows, element)
    assert np.array_equal(ops.reduce_axes_arg(x, kind=kind, axes_mask=2), getattr(np, kind)(x, 1))


def test_ints_are_exact() -> None:
    x = np.array([[2**62, 2**62, 2**62 + 1], [-(2**63), -1, 0]], np.int64)
    with np.errstate(over="ignore"):
        assert np.array_equal(ops.reduce_axes_int(x, kind="sum", axes_mask=2), x.sum(1))
    assert np.array_equal(ops.reduce_axes_int(x, kind="min", axes_mask=1), x.min(0))
    assert ops.reduce_axes_int(x, kind="count_nonzero", axes_mask=3) == 5


def test_a_mask_of_other_axes_is_refused() -> None:
    for mask in (-1, 4):
        with pytest.raises(rt.InvalidProblem, match="no bit of axes_mask beyond the len"):
            ReduceAxesArgDescriptor(kind="argmax", input_shape=(2, 3), axes_mask=mask, element="f32").check()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kept: rest, cell: "mask', "kept: {axes: '()'}, cell: {axes: '()'}, m: \"mask", "one of kept, cell must"),
        ("rest, cell", "rest, each: {of: input_shape}, cell", "'each' is all axes of input_shape, which kept, cell"),
        ('rest, cell: "mask', 'rest, cell: {axes: "(0,)", of: mask}, other: "mask', "share out the axes of one shape"),
        ('cell: "mask_axes(mask, len(input_shape))"', "cell: {axes: mask + 1}", "must be of kind tuple, got"),
        ("rest, cell", "rest, n: {of: mask}, cell", "list them one after the other"),
        ("dims: [kept]", "dims: [kept * cell]", "multiplies axis by axis, and 'kept' has others"),
    ],
)
def test_dims_that_do_not_share_are_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in SPEC
    path = tmp_path / "total.yaml"
    path.write_text(SPEC.replace(old, new, 1))
    with pytest.raises(rt.SpecError) as caught:
        load_spec(path)
    message: Any = str(caught.value)
    assert says in message, message
