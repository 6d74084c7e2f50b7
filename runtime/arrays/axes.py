"""Index geometry in pure integers: axes, masks, strides, spans and overlap of any strided layout.

Strides count elements. The stride of an axis of extent 1 never forms an address, so nothing here reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from ..errors import InvalidProblem
from ..values import short_repr

Ints = tuple[int, ...]

_WORD = 64  # bits
_OVERLAP_WORK = 4096  # partial index differences tried before overlap is presumed; a few milliseconds


def contiguous_strides(shape: Sequence[int]) -> Ints:
    """Row-major element strides of `shape`; an axis of extent 0 counts as extent 1."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent or 1
    return tuple(reversed(strides))


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front; raises InvalidProblem outside [-rank, rank)."""
    if not -rank <= axis < rank:
        axes = f"axes run from {short_repr(-rank)} to {short_repr(rank - 1)}"
        raise InvalidProblem(f"axis {short_repr(axis)} is outside rank {short_repr(rank)}; {axes}")
    return axis % rank


def split_axes(rank: int, cols_axes: Iterable[int]) -> tuple[Ints, Ints]:
    """(row axes, column axes) of a tensor, both ascending; negative column axes count from the back."""
    axes = tuple(cols_axes)
    cols = tuple(sorted({normalize_axis(axis, rank) for axis in axes}))
    if len(cols) != len(axes):
        raise InvalidProblem(f"axes {short_repr(axes)} name an axis of rank {rank} twice; name each once")
    return tuple(axis for axis in range(rank) if axis not in cols), cols


def mask_axes(mask: int, rank: int) -> Ints:
    """Axes d whose bit d is set in `mask`, ascending; raises InvalidProblem for a bit at or beyond `rank`."""
    if mask < 0 or rank < 0 or mask.bit_length() > rank:
        bits = f"{mask:#b}" if mask.bit_length() <= _WORD else f"of {mask.bit_length()} bits"
        raise InvalidProblem(f"axis mask {bits} has a bit outside rank {short_repr(rank)}; bit d stands for axis d")
    return tuple(axis for axis in range(mask.bit_length()) if mask >> axis & 1)


def is_mask(mask: int, rank: int) -> bool:
    """Whether all set bits are axes of [0, rank)."""
    return mask >= 0 and mask.bit_length() <= rank


def is_suffix_mask(mask: int, rank: int) -> bool:
    """Whether the set bits are the last axes of [0, rank), at least one, and none beyond."""
    after = mask + (mask & -mask)  # a power of two where the bits are side by side
    return mask > 0 and after & (after - 1) == 0 and mask.bit_length() == rank


def coalesce(
    shape: Sequence[int], strides_per_tensor: Sequence[Sequence[int]]
) -> tuple[Ints, tuple[Ints, ...]]:
    """The fewest axes that visit the same offsets in the same row-major order, for all tensors at once.

    Drops axes of extent 1 and merges axis d into d + 1 where every tensor has
    stride[d] == stride[d + 1] * shape[d + 1]. The result has rank >= 1: one element is shape (1,), none is
    shape (0,), with stride 1 in every tensor, so that kernels that need a unit stride accept it.
    """
    steps = list(zip(*strides_per_tensor, strict=True)) if strides_per_tensor else [()] * len(shape)
    extents: list[int] = []  # innermost first
    inner: list[Ints] = []
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        if extent == 1:
            continue
        if extent == 0:
            extents = []
            break
        if extents and step == tuple([s * extents[-1] for s in inner[-1]]):
            extents[-1] *= extent
        else:
            extents.append(extent)
            inner.append(step)
    if not extents:
        return (0 if 0 in shape else 1,), ((1,),) * len(strides_per_tensor)
    return tuple(extents[::-1]), tuple(zip(*inner[::-1], strict=True))


def span(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Half-open range of element offsets addressed, relative to the first index; (0, 0) if there are none."""
    low, high = 0, 1
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 0:
            return 0, 0
        if stride < 0:
            low += stride * (extent - 1)
        else:
            high += stride * (extent - 1)
    return low, high


def self_overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices address the same element; also True when a bounded search cannot tell."""
    if 0 in shape:
        return False
    axes = sorted([(abs(s), n - 1) for n, s in zip(shape, strides, strict=True) if n > 1])
    reach = 0  # largest offset of the axes so far
    nested = True
    for stride, last in axes:
        nested = nested and stride > reach
        reach += stride * last
    return not nested and (axes[0][0] == 0 or _Collision(axes).exists())


class _Collision:
    """Search for a non-zero difference d of two indices, |d[k]| <= last[k], with sum(stride[k] * d[k]) == 0.

    Signs do not matter, since every range is symmetric. Axes ascend by stride; the larger ones are enumerated
    within what the smaller ones can still cancel, and the two smallest are solved as a linear congruence.
    """

    def __init__(self, axes: list[tuple[int, int]]) -> None:
        self.axes = axes
        self.work = 0
        self.reach = [0]  # reach[k]: largest sum of the axes below k
        self.gcd = [0]
        for stride, last in axes:
            self.reach.append(self.reach[-1] + stride * last)
            self.gcd.append(gcd(self.gcd[-1], stride))

    def exists(self) -> bool:
        return self._cancels(len(self.axes) - 1, 0)

    def _cancels(self, k: int, rest: int) -> bool:
        """Whether axes 0..k can cancel `rest`; a zero rest means that no axis has moved yet, and one must."""
        self.work += 1
        if self.work > _OVERLAP_WORK:
            return True
        if rest % self.gcd[k + 1]:
            return False
        stride, last = self.axes[k]
        low = max(-last, -((self.reach[k] + rest) // stride))
        high = min(last, (self.reach[k] - rest) // stride)
        if rest == 0:
            low = 1 if k == 1 else 0
        if k == 1:
            return self._pair(stride, rest, low, high)
        moved = ((d, rest + stride * d) for d in range(low, high + 1))
        return any((left == 0 and d != 0) or self._cancels(k - 1, left) for d, left in moved)

    def _pair(self, stride: int, rest: int, low: int, high: int) -> bool:
        """Whether some d1 in [low, high] leaves a multiple of the smallest stride, which then cancels it."""
        common, period = self.gcd[2], self.axes[0][0] // self.gcd[2]
        first = -rest // common * pow(stride // common, -1, period) % period
        return low + (first - low) % period <= high
