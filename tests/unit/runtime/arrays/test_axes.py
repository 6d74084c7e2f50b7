"""Index geometry: layouts keep their offsets, masks their axes, and overlap is decided exactly."""

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baracuda.runtime.arrays import axes
from baracuda.runtime.errors import InvalidProblem


def offsets(shape, strides):
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in product(*map(range, shape))]


def layouts(max_rank, max_extent, max_stride, tensors):
    return st.integers(0, max_rank).flatmap(
        lambda rank: st.tuples(
            st.tuples(*[st.integers(0, max_extent)] * rank),
            st.lists(st.tuples(*[st.integers(-max_stride, max_stride)] * rank), max_size=tensors),
        )
    )


@given(layouts(max_rank=5, max_extent=4, max_stride=6, tensors=3), st.data())
def test_coalescing_keeps_every_offset_in_row_major_order(layout, data):
    """For each tensor the offsets, enumerated in row-major order, are the same before and after."""
    shape, tensors = layout
    if data.draw(st.booleans()):  # drawn strides rarely merge
        tensors = [
            *tensors,
            axes.contiguous_strides(shape),
            tuple(2 * s for s in axes.contiguous_strides(shape)),
        ]
    fused, fused_strides = axes.coalesce(shape, tensors)
    assert prod(fused) == prod(shape) and len(fused) >= 1
    assert len(fused_strides) == len(tensors)
    for before, after in zip(tensors, fused_strides, strict=True):
        assert offsets(fused, after) == offsets(shape, before)


@given(layouts(max_rank=5, max_extent=4, max_stride=6, tensors=3))
def test_coalescing_twice_changes_nothing(layout):
    """A coalesced layout has no axis left to drop or to merge."""
    once = axes.coalesce(*layout)
    assert axes.coalesce(*once) == once


@pytest.mark.parametrize(
    ("shape", "strides", "fused", "fused_strides"),
    [
        ((2, 3, 4), [(12, 4, 1)], (24,), ((1,),)),
        ((2, 3, 4), [(12, 4, 1), (0, 4, 1)], (2, 12), ((12, 1), (0, 1))),
        ((2, 3, 4), [(0, 0, 0), (12, 4, 1)], (24,), ((0,), (1,))),
        ((2, 3, 4), [(4, 8, 1)], (2, 3, 4), ((4, 8, 1),)),  # a transpose is not merged, nor sorted
        ((3, 4), [(-4, -1)], (12,), ((-1,),)),
        ((2, 1, 4), [(4, 99, 1)], (8,), ((1,),)),
        ((2, 3), [], (6,), ()),
        ((), [(), ()], (1,), ((1,), (1,))),
        ((1, 1), [(7, 9)], (1,), ((1,),)),
        ((2, 0, 3), [(5, 5, 5)], (0,), ((1,),)),
    ],
)
def test_coalescing_gives_the_fewest_axes(shape, strides, fused, fused_strides):
    """Every mergeable pair of neighbours is merged; one element and none keep one axis of unit stride."""
    assert axes.coalesce(shape, strides) == (fused, fused_strides)


@given(layouts(max_rank=4, max_extent=4, max_stride=12, tensors=1))
def test_overlap_is_what_enumeration_finds(layout):
    """A layout overlaps itself exactly when two of its offsets are equal, whatever the strides."""
    shape, strides = layout
    for step in strides:
        seen = offsets(shape, step)
        assert axes.self_overlaps(shape, step) == (len(set(seen)) < len(seen))


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((3, 4), (3, 1), True),
        ((2, 2, 2), (5, 3, 2), True),  # 5 == 3 + 2: no two axes collide, all three do
        ((2, 2, 2), (5, 3, 1), False),
        ((2, 2, 2), (4, 3, 2), False),  # not nested, yet unique
        ((2, 2, 2), (9, 6, 4), False),  # 9 is odd, 6 and 4 are not
        ((2, 2, 2, 2), (8, 8, 2, 1), True),  # only the two largest collide
        ((2, 2, 2, 2), (11, 9, 5, 3), True),  # 11 + 3 == 9 + 5
        ((4, 4), (0, 1), True),
        ((1, 4), (0, 1), False),
        ((0, 4), (0, 0), False),
        ((10**6, 10**6 + 1), (10**6, 10**6 - 1), True),
        ((10**6, 10**6), (10**6, 10**6 - 1), False),  # one step short of colliding
        ((10**6, 10**6), (10**6 + 1, 10**6), False),
        ((2,) * 8, (128, 64, 32, 16, 8, 4, 2, 1), False),
    ],
)
def test_overlap_of_layouts_too_large_to_enumerate(shape, strides, overlaps):
    """Overlap depends on the addresses alone: strides that do not nest may still be unique."""
    assert axes.self_overlaps(shape, strides) is overlaps


def test_overlap_that_cannot_be_decided_is_presumed(monkeypatch):
    """When the bounded search runs out, the answer is the safe one."""
    shape, strides = (4, 4, 4), (12, 11, 40)  # unique, but not nested
    assert not axes.self_overlaps(shape, strides)
    monkeypatch.setattr(axes, "_OVERLAP_WORK", 0)
    assert axes.self_overlaps(shape, strides)


@given(layouts(max_rank=4, max_extent=4, max_stride=6, tensors=1))
def test_span_is_the_smallest_range_around_all_offsets(layout):
    """The span starts at the lowest offset, ends behind the highest, and is empty when there is none."""
    shape, strides = layout
    for step in strides:
        seen = offsets(shape, step)
        assert axes.span(shape, step) == ((min(seen), max(seen) + 1) if seen else (0, 0))


@given(st.lists(st.integers(1, 4), max_size=5))
def test_contiguous_strides_visit_memory_in_order(shape):
    """Row-major strides number the elements 0, 1, 2, ..."""
    assert offsets(shape, axes.contiguous_strides(shape)) == list(range(prod(shape)))


@given(st.integers(0, 8), st.integers(-2, 1 << 10))
def test_a_suffix_mask_is_the_last_axes_and_no_other_bit(rank, mask):
    """The masks of rank r that count as suffixes are exactly those of its r non-empty tails."""
    tails = {sum(1 << axis for axis in range(first, rank)) for first in range(rank)}
    assert axes.is_suffix_mask(mask, rank) is (mask in tails)


def test_rank_eight_has_a_full_suffix():
    """All eight axes of a rank-8 tensor are a suffix; the ninth bit is none of them."""
    assert axes.is_suffix_mask(0xFF, 8)
    assert axes.is_suffix_mask(0x80, 8)
    assert not axes.is_suffix_mask(0x1FF, 8)
    assert not axes.is_suffix_mask(0, 8)


def test_mask_bits_name_axes():
    """Bit d stands for axis d, and a bit without an axis is refused."""
    assert axes.mask_axes(0b1011, 4) == (0, 1, 3)
    assert axes.mask_axes(0, 0) == ()
    assert axes.mask_axes(0xFF, 8) == tuple(range(8))
    for mask, rank in ((0b100, 2), (-1, 4), (1, 0)):
        with pytest.raises(InvalidProblem, match=f"outside rank {rank}"):
            axes.mask_axes(mask, rank)


def test_axes_split_into_rows_and_columns():
    """Rows and columns partition the axes, each ascending, however the columns were named."""
    assert axes.split_axes(4, (3, 1)) == ((0, 2), (1, 3))
    assert axes.split_axes(3, (-1,)) == ((0, 1), (2,))
    assert axes.split_axes(2, ()) == ((0, 1), ())
    with pytest.raises(InvalidProblem, match="twice"):
        axes.split_axes(3, (2, -1))


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_outside_the_rank_is_refused(axis):
    """Axes run from -rank to rank - 1."""
    assert axes.normalize_axis(-1, 2) == 1
    assert axes.normalize_axis(1, 2) == 1
    with pytest.raises(InvalidProblem, match=f"axis {axis} is outside rank 2"):
        axes.normalize_axis(axis, 2)
