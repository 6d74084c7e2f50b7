"""Invariant: `matmul` is NumPy's, of any ranks, and a row has the same bits whatever is beside it."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda.ops import matmul
from baracuda.runtime import InvalidProblem


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (4,)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((2, 6, 3, 4), (2, 6, 4, 5)),
        ((0, 3, 4), (4, 5)),
        ((2, 3, 0), (2, 0, 5)),
    ],
)
@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.frontends)])
def test_products_are_numpys(a: tuple[int, ...], b: tuple[int, ...], library: str) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal(a), rng.standard_normal(b)
    if library == "numpy":
        y = matmul(left, right)
    else:
        torch = pytest.importorskip("torch")
        y = matmul(torch.from_numpy(left), torch.from_numpy(right)).numpy()
    assert y.shape == (left @ right).shape
    np.testing.assert_allclose(y, left @ right, 1e-12, 1e-12)


def test_a_row_has_the_same_bits_in_any_batch() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 7, 40), np.float32), rng.standard_normal((40, 9), np.float32)
    y = matmul(a, b)
    assert np.array_equal(matmul(a[1, 2], b), y[1, 2]) and np.array_equal(matmul(a[1:], b), y[1:])


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((3, 4), (3, 5), r"a has 4 columns, b 3 rows; got shapes \(3, 4\) and \(3, 5\)"),
        ((2, 3, 4), (3, 4, 5), r"do not broadcast, got shapes \(2, 3, 4\) and \(3, 4, 5\)"),
        ((), (4, 5), "a number has no axis to multiply along"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(a: tuple[int, ...], b: tuple[int, ...], said: str) -> None:
    with pytest.raises(InvalidProblem, match=said):
        matmul(np.ones(a), np.ones(b))
