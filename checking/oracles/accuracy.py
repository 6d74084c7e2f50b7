"""Errors of a result, in units of the declared bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from baracuda.codegen.program.ops import NumPy
from baracuda.codegen.spec.parts import BoundSpec
from baracuda.runtime import ElementKind
from baracuda.runtime.arrays.element import Element


@dataclass(frozen=True)
class Accuracy:
    """The errors of an output; `worst_ratio` is the largest error in units of its bound.

    `index` is the element with that ratio.
    """

    max_error: float
    worst_ratio: float
    relative: float  # error over expected, as norms
    bound_there: float = 0.0
    index: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0

    def __str__(self) -> str:
        position = f"element {self.index}" if self.index else "the element"
        off = f"got {self.got:.9g}, expected {self.expected:.9g} within {self.bound_there:.3g}"
        return f"{position}: {off} ({self.worst_ratio:.3g} times the bound)"


def parts(numbers: Any) -> Any:
    """Real and imaginary parts, as a last axis."""
    return np.stack([np.real(numbers), np.imag(numbers)], -1)


def numbers_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The real numbers in an array without gaps, one after another."""
    flat = array.reshape(-1)
    return flat.view(flat.real.dtype) if array.dtype.kind == "c" else flat


def of_parts(function: Callable[..., Any], *numbers: Any) -> Any:
    """A function of real numbers, applied to both parts where some are complex."""
    if not any(np.iscomplexobj(number) for number in numbers):
        return function(*numbers)
    return NumPy.complex(*(function(*map(part, numbers)) for part in (np.real, np.imag)))


def as_float(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`array` as float64; integers, bools and complex numbers as they are."""
    return array if array.dtype.kind in "iubc" else array.astype(np.float64)


def compare(got: Any, expected: Any, tolerance: Any, kind: ElementKind) -> Accuracy:
    """Measure the errors of `got`, stored as `kind`; the ratio is infinite where only one of the two is finite.

    Where `expected` may overflow `kind`, within the tolerance, an infinity of its sign is right; in f8e4m3, which has
    no infinities, NaN is.
    """
    if kind.value[0] == "c":
        kind, got, expected, tolerance = kind.row.acc, parts(got), parts(expected), parts(tolerance)
    if kind.row.numpy.kind in "iu" and np.asarray(expected).dtype.kind in "iu":
        expected = np.asarray(expected).astype(kind.row.numpy)  # modulo two to the number of its bits
    largest = kind.row.largest or np.inf
    doubles = all(np.asarray(numbers).dtype == np.float64 for numbers in (got, expected))
    wide = np.float64 if doubles else np.longdouble  # three times as slow
    got, expected = np.asarray(got, wide), np.asarray(expected, wide)
    if not got.size:
        return Accuracy(0.0, 0.0, 0.0)
    tolerance = np.broadcast_to(np.asarray(tolerance, wide), got.shape)
    with np.errstate(all="ignore"):
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        beyond = np.isnan(got) if kind == ElementKind.F8E4M3 else np.isinf(got)
        alike = (np.sign(got) == np.sign(expected)) | np.isnan(got) | (tolerance >= largest)
        same |= beyond & (np.abs(expected) + tolerance >= largest) & alike
        error = np.where(same, 0, np.abs(got - expected))
        ratio = np.where(same, 0, error / tolerance)
        ratio = np.where(np.isnan(ratio) | np.isinf(error), np.inf, ratio)
        finite = np.isfinite(got) & np.isfinite(expected)
        norm = float(np.sqrt(np.sum(np.where(finite, expected, 0) ** 2)))
        distance = float(np.sqrt(np.sum(np.where(finite, got - expected, 0) ** 2)))
    worst = int(np.argmax(ratio))
    relative = distance / norm if norm else distance
    index = tuple(int(i) for i in np.unravel_index(worst, got.shape))
    return Accuracy(
        max_error=float(error.max()),
        worst_ratio=float(ratio.max()),
        relative=relative,
        bound_there=float(tolerance.flat[worst]),
        index=index,
        got=float(got.flat[worst]),
        expected=float(np.broadcast_to(expected, got.shape).flat[worst]),
    )


def stored(value: Any, error: Any, kind: ElementKind, declared: BoundSpec) -> Any:
    """The bound on the error of a value stored as `kind`, whose error before the store is at most `error`."""
    if kind.value[0] == "c":
        return NumPy.complex(*(stored(of(value), of(error), kind.row.acc, declared) for of in (np.real, np.imag)))
    error = declared.c2 * np.asarray(error, np.float64)
    row = kind.row
    if not row.unit_roundoff:
        return error
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities and NaN, whose bound says nothing
        size = np.abs(np.asarray(value, np.float64)) + error
        return error + declared.c1 * row.unit_roundoff * size + smallest(row)


def smallest(row: Element) -> float:
    """The smallest subnormal number."""
    return 2 * row.unit_roundoff * row.smallest_normal
