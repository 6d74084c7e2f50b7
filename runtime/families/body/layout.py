"""The layouts of a body plan's arrays, and the argument struct of its kernels."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...arrays.arguments import Views
from ...arrays.tensor import TensorView
from ...plans.sku import VECTOR_BYTES

_MAP_ALIGNMENT = 8  # words; tensor maps stand first in a struct, and align it


def layouts_of(axes: Mapping[str, Mapping[str, int]], layouts: Sequence[str], views: Views) -> list[str]:
    """The `layouts` that `views` satisfy, in order; the last one takes anything.

    A tensor satisfies a layout that names one of its axes if that axis has stride 1 and whole 16-byte packs, and the
    base and all other strides are multiples of 16 bytes.
    """
    *strict, last = layouts
    satisfied = [n for n in strict if all(t not in views or _packed(views[t], axis) for t, axis in axes[n].items())]
    return [*satisfied, last]


def _packed(tensor: TensorView, axis: int) -> bool:
    if 0 in tensor.shape:
        return True
    vec = VECTOR_BYTES // tensor.element.row.bytes
    inner = axis % len(tensor.shape)
    others = (s for a, (n, s) in enumerate(zip(tensor.shape, tensor.strides, strict=True)) if a != inner and n > 1)
    unit = tensor.shape[inner] == 1 or tensor.strides[inner] == 1
    whole_packs = tensor.shape[inner] % vec == 0 and tensor.pointer % VECTOR_BYTES == 0
    return unit and whole_packs and all(stride % vec == 0 for stride in others)


def strides_of(tensor: TensorView, rank: int) -> tuple[int, ...]:
    """Strides as the kernel's struct has them, for `rank` axes: 0 along axes of extent 1."""
    empty = 0 in tensor.shape
    strides = tuple(0 if n == 1 or empty else s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    return (0,) * (rank - len(strides)) + strides


@dataclass(frozen=True, slots=True)
class StructWords:
    """The argument struct of all kernels of an op: tensor maps, tensors, fields, scratch."""

    maps: tuple[tuple[str, tuple[int, ...]], ...]
    ranks: Mapping[str, int]
    fields: tuple[int, ...]
    scratch: tuple[int, ...]

    def filled(self, views: Views, workspace: int) -> array[int]:
        words = array("q")
        if self.maps:
            from ...devices.tensor_map import encode

            for name, box in self.maps:
                words.extend(encode(views[name], box))
        for name, rank in self.ranks.items():
            tensor = views.get(name)
            words.append(0 if tensor is None else tensor.pointer)
            words.extend((0,) * rank if tensor is None else strides_of(tensor, rank))
        words.extend(self.fields)
        words.extend(workspace + offset for offset in self.scratch)
        if self.maps:
            words.extend((0,) * (-len(words) % _MAP_ALIGNMENT))
        return words
