"""How the arrays of a body plan lie in memory: the first declared layout that all of them keep to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .arguments import Views
from .sku import VECTOR_BYTES
from .tensor import TensorView


def layout_of(axes: Mapping[str, Mapping[str, int]], layouts: Sequence[str], views: Views) -> str:
    """The first of `layouts` that `views` keep to; the last one takes anything.

    A tensor keeps to a layout that names one of its axes when that axis has stride 1 and whole packs of 16 bytes, and
    the tensor begins and steps along every other axis at a multiple of 16 bytes.
    """
    for layout in layouts[:-1]:
        if all(name not in views or _packed(views[name], axis) for name, axis in axes[layout].items()):
            return layout
    return layouts[-1]


def _packed(there: TensorView, axis: int) -> bool:
    if 0 in there.shape:
        return True
    vec = VECTOR_BYTES // there.element.row.bytes
    inner = axis % len(there.shape)
    others = (s for a, (n, s) in enumerate(zip(there.shape, there.strides, strict=True)) if a != inner and n > 1)
    unit = there.shape[inner] == 1 or there.strides[inner] == 1
    whole = there.shape[inner] % vec == 0 and there.pointer % VECTOR_BYTES == 0
    return unit and whole and all(stride % vec == 0 for stride in others)


def strides_of(there: TensorView, rank: int) -> tuple[int, ...]:
    """Strides as the kernel's struct holds them, for `rank` axes: 0 along those it lacks or has one element of."""
    kept = tuple(0 if n == 1 else s for n, s in zip(there.shape, there.strides, strict=True))
    return (0,) * (rank - len(kept)) + kept
