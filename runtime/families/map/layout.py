"""Whether packs of neighbouring cells are contiguous in the caller's arrays, and which kernel layout serves them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ...arrays.axes import contiguous_strides
from ...plans.sku import VECTOR_BYTES


class Placed(NamedTuple):
    """A tensor along the last axis, in packs, and its strides along all others."""

    operand: int
    pointer: int
    itemsize: int
    written: bool
    strides: tuple[int, ...]
    others: tuple[int, ...]

    def is_whole(self, extents: Sequence[int], vec: int) -> bool:
        """Whether every pack of `vec` cells is aligned and contiguous here."""
        pack = min(VECTOR_BYTES, vec * self.itemsize)
        if self.pointer % pack or any(step * self.itemsize % pack for step in self.others):
            return False
        if self.strides == contiguous_strides(extents):
            return True
        *outer, inner = self.strides
        return inner == 1 and extents[-1] % vec == 0 and not any(step * self.itemsize % pack for step in outer)


def layout_of(
    tensors: Sequence[Placed], extents: Sequence[int], vec: int, *, cells: bool, allowed: Collection[str]
) -> tuple[str, int]:
    """The strictest of the `allowed` layouts, else "strided", and a bit for each operand with whole packs.

    Packed: each tensor has whole packs, or one element for all cells of a pack. Flat: a pack spans two rows at most,
    and where only `cells` are stored, the output is contiguous.
    """
    if extents[-1] < vec:
        return "strided", 0
    contiguous = contiguous_strides(extents)
    packed = {t.operand for t in tensors if t.is_whole(extents, vec)}
    bits = sum(1 << operand for operand in packed)
    splat = {t.operand for t in tensors if t.strides[-1] == 0 and not t.written}
    if "packed" in allowed and extents[-1] % vec == 0 and all(t.operand in packed | splat for t in tensors):
        return "packed", bits
    is_flat = not cells or all(t.operand in packed and t.strides == contiguous for t in tensors if t.written)
    return ("flat", bits) if "flat" in allowed and is_flat else ("strided", 0)
