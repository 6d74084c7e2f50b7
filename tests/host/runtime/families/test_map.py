"""The map family: ALiBi and repeat in both directions, on the host device, against NumPy."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from repository import LONG, ROOT, SPECS

import baracuda.runtime as rt
from baracuda.checking.listing.sample import sample
from baracuda.checking.listing.variants import variants_of
from baracuda.checking.oracles.accuracy import compare
from baracuda.checking.verify import run
from baracuda.cli.kernels.audit_report import Audit
from baracuda.codegen.emit.generate import generate, texts
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.project import Project
from baracuda.codegen.spec.load import load_folder, load_spec
from baracuda.generated import (
    AlibiBackwardDescriptor,
    AlibiBackwardPlan,
    AlibiDescriptor,
    AlibiPlan,
    AvgPool2dDescriptor,
    AvgPool2dPlan,
    Pad2dDescriptor,
    Pad2dPlan,
    RepeatBackwardDescriptor,
    RepeatBackwardPlan,
    RepeatDescriptor,
    RepeatPlan,
)
from baracuda.runtime.families.map import geometry as map_geometry
from baracuda.runtime.families.map import plan as map_
from baracuda.runtime.families.map import selection as map_selection
from baracuda.runtime.families.map.geometry import MAX_AXES, space_words
from baracuda.runtime.plans.schedule import Schedule

Array = np.ndarray[Any, Any]
FLOATS = ("f32", "bf16", "f64")
SIZES = ("u8", "bf16", "f32", "f64", "c128")  # an element of each size
LAYOUTS = ("contiguous", "shifted", "padded", "reversed", "transposed", "sparse")


@pytest.fixture
def watched() -> Iterator[None]:
    device: Any = rt.get_device("host")
    device.check = True
    yield
    device.check = False


@pytest.fixture
def singles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A few cells are summed as if they were many."""
    monkeypatch.setattr(map_geometry, "_MANY_CELLS", 1)
    for kind in (RepeatBackwardPlan, AlibiBackwardPlan):
        kind._selected.clear()
    yield
    for kind in (RepeatBackwardPlan, AlibiBackwardPlan):
        kind._selected.clear()


def _numpy(element: str) -> Any:
    return rt.ElementKind(element).row.numpy


def _normal(shape: tuple[int, ...], element: str, seed: int = 0) -> Array:
    values: Array = np.random.default_rng(seed).standard_normal(shape).astype(_numpy(element))
    return values


def _laid(values: Array, how: str) -> Array:
    """The values in memory that lies as `how` says; what lies around them is poison."""
    shape, rank = values.shape, values.ndim
    if how == "shifted":  # by one element, so that nothing is aligned
        there = _poison((values.size + 1,), values.dtype)[1:].reshape(shape)
    elif how == "padded":
        there = _poison((*shape[:-1], shape[-1] + 3), values.dtype)[..., : shape[-1]]
    elif how == "reversed":
        there = _poison(shape, values.dtype)[(slice(None, None, -1),) * rank]
    elif how == "transposed":
        there = _poison(shape[::-1], values.dtype).T
    elif how == "sparse":
        there = _poison(tuple(2 * n for n in shape), values.dtype)[(slice(None, None, 2),) * rank]
    else:
        there = _poison(shape, values.dtype)
    there[...] = values
    return there


def _poison(shape: tuple[int, ...], dtype: Any) -> Array:
    """16-byte aligned."""
    count = math.prod(shape)
    raw = np.full(count * dtype.itemsize + 16, 0xFF, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


def _run(plan: Any, **arrays: Any) -> None:
    plan.run(**arrays, workspace=_poison((plan.workspace_bytes,), np.dtype(np.uint8)) if plan.workspace_bytes else None)


def _distance(queries: int, keys: int) -> Array:
    return np.arange(keys)[None, :] - np.arange(queries)[:, None]


def _alibi(scores: Array, slopes: Array) -> Array:
    """As the kernel rounds: in the accumulator, every operation by itself."""
    acc = np.float64 if scores.dtype == np.float64 else np.float32
    distance = _distance(*scores.shape[2:]).astype(acc)
    return (scores.astype(acc) + slopes.astype(acc)[:, None, None] * distance).astype(scores.dtype)


def _alibi_plan(shape: tuple[int, ...], element: str) -> AlibiPlan:
    names = ("batch_size", "num_heads", "query_len", "key_len")
    return AlibiPlan.select(AlibiDescriptor(**dict(zip(names, shape, strict=True)), element=element))  # type: ignore[arg-type]


def _alibi_backward_plan(shape: tuple[int, ...], element: str, **flags: bool) -> AlibiBackwardPlan:
    names = ("batch_size", "num_heads", "query_len", "key_len")
    given: dict[str, Any] = {**dict(zip(names, shape, strict=True)), **flags}
    return AlibiBackwardPlan.select(AlibiBackwardDescriptor(**given, element=element))


def _repeat_plan(shape: tuple[int, ...], repeats: tuple[int, ...], element: str) -> RepeatPlan:
    return RepeatPlan.select(RepeatDescriptor(input_shape=shape, repeats=repeats, element=element))


def _repeat_backward_plan(shape: tuple[int, ...], repeats: tuple[int, ...], element: str) -> RepeatBackwardPlan:
    return RepeatBackwardPlan.select(RepeatBackwardDescriptor(input_shape=shape, repeats=repeats, element=element))


def _summed(dy: Array, shape: tuple[int, ...], repeats: tuple[int, ...]) -> Array:
    """In float64: the sum over the copies, and in its second half the sum of magnitudes."""
    axes = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    wide = dy.astype(np.float64).reshape(axes)
    over = tuple(range(0, len(axes), 2))
    return np.stack([wide.sum(over), np.abs(wide).sum(over)])


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(2, 3, 5, 16), (2, 5, 9, 33), (3, 7, 5, 3), (1, 1, 1, 1)])
def test_alibi_is_the_definition_in_every_layout(shape: tuple[int, ...], element: str) -> None:
    plan, scores, slopes = _alibi_plan(shape, element), _normal(shape, element), _normal(shape[1:2], element, 1)
    wanted = _alibi(scores, slopes)
    for how in LAYOUTS:
        y = _laid(np.zeros(shape, scores.dtype), how)
        _run(plan, scores=_laid(scores, LAYOUTS[-1 - LAYOUTS.index(how)]), slopes=_laid(slopes, "reversed"), y=y)
        assert np.array_equal(y, wanted), how
    same = _laid(scores, "contiguous")
    _run(plan, scores=same, slopes=slopes, y=same)
    assert np.array_equal(same, wanted)


def test_alibi_reads_broadcast_scores() -> None:
    plan, row, slopes = _alibi_plan((2, 3, 4, 16), "f32"), _normal((16,), "f32"), _normal((1,), "f32", 1)
    y = np.zeros((2, 3, 4, 16), np.float32)
    scores, shared = np.broadcast_to(row, y.shape), np.broadcast_to(slopes, (3,))
    _run(plan, scores=scores, slopes=shared, y=y)
    assert np.array_equal(y, _alibi(scores, shared))
    _run(plan, scores=np.broadcast_to(row[:4, None], y.shape), slopes=shared, y=y)
    assert np.array_equal(y, _alibi(np.broadcast_to(row[:4, None], y.shape), shared))


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(2, 3, 5, 16), (2, 5, 9, 33), (3, 7, 5, 3), (1, 20, 1, 1), (3, 1, 128, 256)])
def test_gradients_of_alibi(shape: tuple[int, ...], element: str) -> None:
    plan, dy = _alibi_backward_plan(shape, element), _normal(shape, element)
    acc = rt.ElementKind(element).row.acc
    terms = dy.astype(np.float64) * _distance(*shape[2:])
    exact, size = terms.sum((0, 2, 3)), np.abs(terms).sum((0, 2, 3))
    first = None
    for how in LAYOUTS if dy.size < 2000 else LAYOUTS[:2]:
        dscores = _laid(np.zeros_like(dy), how)
        dslopes = _poison(shape[1:2], _numpy(acc))
        _run(plan, dy=_laid(dy, LAYOUTS[-1 - LAYOUTS.index(how)]), dscores=dscores, dslopes=dslopes)
        assert np.array_equal(dscores, dy), how
        assert np.all(np.abs(dslopes - exact) <= 20 * acc.row.unit_roundoff * size), how
        first = dslopes.copy() if first is None else first
        assert np.array_equal(first, dslopes), f"{how} adds in another order"
    in_place, rounded = _laid(dy, "contiguous"), np.zeros(shape[1:2], _numpy(element))
    _run(plan, dy=in_place, dscores=in_place, dslopes=rounded)
    assert first is not None and np.array_equal(in_place, dy) and np.array_equal(rounded, first.astype(rounded.dtype))
    alone = np.zeros_like(first)
    _run(_alibi_backward_plan(shape, element, has_dscores=False), dy=dy, dslopes=alone)
    assert np.array_equal(alone, first)
    copied = np.zeros_like(dy)
    _run(_alibi_backward_plan(shape, element, has_dslopes=False), dy=dy, dscores=copied)
    assert np.array_equal(copied, dy)


def test_a_copy_in_place_writes_nothing() -> None:
    dy = _normal((2, 3, 4, 16), "f32")
    plan = _alibi_backward_plan(dy.shape, "f32", has_dslopes=False)
    views = {"dy": rt.view(dy, "dy"), "dscores": rt.view(dy, "dscores")}
    assert plan._launches(views, 0) == []
    both = _alibi_backward_plan(dy.shape, "f32")
    views["dslopes"] = rt.view(np.zeros(3, np.float32), "dslopes")
    (launch,) = both._launches(views, 0)
    assert "BARACUDA_HAS_DSCORES=0" in launch.source.defines and launch.source in set(both.sources())


def test_sums_of_nothing_are_zero() -> None:
    for shape in ((0, 3, 4, 8), (2, 3, 0, 8), (2, 3, 4, 0)):
        dslopes = np.full(3, 7, np.float32)
        empty = np.zeros(shape, np.float32)
        _run(_alibi_backward_plan(shape, "f32"), dy=empty, dscores=empty.copy(), dslopes=dslopes)
        assert not dslopes.any(), shape


_TILES = [
    ((1,), (1,)), ((3,), (5,)), ((1,), (1000,)), ((6, 32), (3, 1)), ((4, 16), (2, 3)), ((9, 5, 33), (3, 2, 3)),
    ((40, 1), (1, 24)), ((2, 1, 3, 1, 2, 1, 2, 3), (1, 2, 1, 3, 2, 1, 1, 2)), ((0, 5), (2, 3)), ((3, 4, 5), (1, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("element", SIZES)
def test_repeat_moves_every_bit(element: str) -> None:
    kind = _numpy(element)
    for turn, (shape, repeats) in enumerate(_TILES):
        raw = np.random.default_rng(turn).integers(0, 256, (*shape, kind.itemsize), np.uint8)
        x = (raw % 2 if element == "bool" else raw).view(kind)[..., 0]  # NaNs of any payload among them
        wanted = np.tile(x, repeats)
        for how in LAYOUTS:
            y = _laid(np.zeros(wanted.shape, kind), how)
            _run(_repeat_plan(shape, repeats, element), x=_laid(x, LAYOUTS[-1 - LAYOUTS.index(how)]), y=y)
            assert np.ascontiguousarray(y).tobytes() == wanted.tobytes(), (shape, repeats, how)


def test_repeat_moves_every_element() -> None:
    for kind in rt.ElementKind:
        x = np.arange(192).astype(_numpy(kind)).reshape(6, 32)
        y = np.zeros((18, 32), x.dtype)
        _run(_repeat_plan((6, 32), (3, 1), kind), x=x, y=y)
        assert np.array_equal(y, np.tile(x, (3, 1))), kind


@pytest.mark.parametrize("element", FLOATS)
def test_the_gradient_of_repeat_adds_in_one_order(element: str) -> None:
    acc = rt.ElementKind(element).row.acc.row
    for shape, repeats in [*_TILES, ((2,), (700,)), ((1,), (20000,)), ((5,), (4001,)), ((1, 7), (3000, 1))]:
        dy = _normal(tuple(a * b for a, b in zip(shape, repeats, strict=True)), element)
        plan, first = _repeat_backward_plan(shape, repeats, element), None
        exact, size = _summed(dy, shape, repeats)
        for how in LAYOUTS if dy.size < 3000 else LAYOUTS[:2]:
            dx = _laid(np.full(shape, 7, dy.dtype), LAYOUTS[-1 - LAYOUTS.index(how)])
            _run(plan, dy=_laid(dy, how), dx=dx)
            allowed = 20 * acc.unit_roundoff * size + rt.ElementKind(element).row.unit_roundoff * np.abs(exact)
            assert np.all(np.abs(dx.astype(np.float64) - exact) <= allowed), (shape, repeats, how)
            first = dx.copy() if first is None else first
            assert np.array_equal(first, dx), (shape, repeats, how)


def test_long_sums_stay_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many terms of one size, in one block: a running sum of 128 or more a thread that drifts unless compensated."""
    monkeypatch.setattr(map_geometry, "_WORTH_SPLITTING", 2**62)
    for shape, repeats in (((1,), (1 << 19,)), ((3,), (1 << 17,))):
        dy = np.full(shape[0] * repeats[0], 0.1, np.float32)
        dx = np.zeros(shape, np.float32)
        _run(_repeat_backward_plan(shape, repeats, "f32"), dy=dy, dx=dx)
        assert np.abs(dx / (np.float64(np.float32(0.1)) * repeats[0]) - 1).max() < 2.0**-22


def test_infinities_and_nans_of_a_sum() -> None:
    plan, dx = _repeat_backward_plan((4,), (9,), "f32"), np.zeros(4, np.float32)
    dy = np.ones((9, 4), np.float32)
    dy[3, 0], dy[2, 1], dy[5, 1], dy[1, 2] = np.inf, np.inf, -np.inf, np.nan
    _run(plan, dy=dy.ravel(), dx=dx)
    assert dx[0] == np.inf and np.isnan(dx[1]) and np.isnan(dx[2]) and dx[3] == 9


def test_splits_follow_from_the_shape_alone() -> None:
    plan = _repeat_backward_plan((1,), (1 << 28,), "f32")
    cut = plan._cut
    assert cut is not None and cut.walk == "rows" and 528 <= cut.splits <= 1056 and cut.kept == 1
    assert cut.splits * cut.per_split >= cut.units > (cut.splits - 1) * cut.per_split
    heads = _alibi_backward_plan((8, 32, 2048, 2048), "bf16")._cut
    assert heads is not None and heads.blocks * heads.splits >= 4 * 132
    columns = _repeat_backward_plan((1024, 16, 32), (3, 5, 7), "bf16")._cut
    assert columns is not None and columns.walk == "columns" and columns.blocks * columns.splits >= 4 * 132


@pytest.mark.parametrize(
    ("shape", "repeats", "element", "walk"),
    [
        ((1024, 17, 33), (3, 5, 7), "bf16", "singles"),
        ((1024, 17, 33), (1, 105, 1), "bf16", "singles"),  # 561 neighbours
        ((1024, 17, 33), (105, 1, 1), "bf16", "columns"),  # all are neighbours, a whole number of packs
        ((1024, 17, 34), (3, 5, 7), "f64", "columns"),
        ((1024, 17, 34), (3, 5, 7), "f32", "singles"),
        ((1024, 17, 33), (3, 5, 1), "bf16", "columns"),  # few terms
        ((100, 17, 33), (3, 5, 7), "bf16", "columns"),  # few cells
        ((1024, 561, 1), (3, 5, 7), "bf16", "rows"),
    ],
)
def test_cells_that_are_never_whole_packs_are_summed_singly(
    shape: tuple[int, ...], repeats: tuple[int, ...], element: str, walk: str
) -> None:
    cut = _repeat_backward_plan(shape, repeats, element)._cut
    assert cut is not None and cut.walk == walk
    assert walk != "singles" or (cut.splits == 1 and cut.grids(Schedule(256)) == ((-(-cut.kept // 256), 1, 1),))


def _in_turns(terms: Array, turn: int) -> Array:
    """The sum along the first axis as one thread makes it: pairs of pairs, then compensated."""
    high, low = np.zeros_like(terms[0]), np.zeros_like(terms[0])
    for first in range(0, len(terms), turn):
        some = np.zeros((turn, *terms.shape[1:]), terms.dtype)
        some[: len(terms) - first] = terms[first : first + turn]
        while len(some) > 1:
            some = some[0::2] + some[1::2]
        both = high + some[0]
        seen = both - high
        low += (high - (both - seen)) + (some[0] - seen)
        high = both
    return high + low


_SINGLES = [((9, 5, 33), (3, 2, 3)), ((7,), (17,)), ((3, 5), (40, 10)), ((300, 3), (4, 5)), ((5, 1, 3), (16, 2, 1))]


@pytest.mark.usefixtures("singles")
@pytest.mark.parametrize("element", FLOATS)
def test_single_cells_add_in_one_order(element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    acc = _numpy(rt.ElementKind(element).row.acc)
    for shape, repeats in _SINGLES:
        dy = _normal(tuple(a * b for a, b in zip(shape, repeats, strict=True)), element)
        axes = [n for pair in zip(repeats, shape, strict=True) for n in pair]
        kept = range(1, len(axes), 2)
        terms = dy.astype(acc).reshape(axes).transpose(*range(0, len(axes), 2), *kept).reshape(-1, *shape)
        wanted = _in_turns(terms, 32 // dy.itemsize).astype(dy.dtype)
        for most in (2**31, 1):
            monkeypatch.setattr(map_, "NARROW", most)
            monkeypatch.setattr(map_selection, "NARROW", most)
            RepeatBackwardPlan._selected.clear()
            plan = _repeat_backward_plan(shape, repeats, element)
            assert plan._cut is not None and plan._cut.walk == "singles" and plan._wide is (most == 1)
            for how in LAYOUTS if most > 1 else LAYOUTS[:2]:
                dx = _laid(np.full(shape, 7, dy.dtype), LAYOUTS[-1 - LAYOUTS.index(how)])
                _run(plan, dy=_laid(dy, how), dx=dx)
                assert np.array_equal(dx, wanted), (shape, repeats, how, most)


@pytest.mark.usefixtures("singles", "watched")
def test_single_cells_read_what_is_theirs() -> None:
    for shape, repeats in (*_SINGLES, ((8, 3), (3, 7))):
        dy, dx = np.ones([a * b for a, b in zip(shape, repeats, strict=True)], np.float16), np.zeros(shape, np.float16)
        _run(_repeat_backward_plan(shape, repeats, "f16"), dy=dy, dx=dx)
        assert np.all(dx == math.prod(repeats)), (shape, repeats)
        plan, one = _repeat_backward_plan(shape, repeats, "f16"), np.broadcast_to(np.float16(2), dy.shape)
        _run(plan, dy=one, dx=dx)
        assert np.all(dx == 2 * math.prod(repeats)), (shape, repeats)
        for launch in plan._launches({"dy": rt.view(one, "dy"), "dx": rt.view(dx, "dx")}, 0):
            assert launch.source in set(plan.sources()), (shape, repeats)  # though packs of one element are whole


@pytest.mark.usefixtures("singles")
def test_infinities_and_nans_of_single_cells() -> None:
    dy, dx = np.ones((17, 5), np.float32), np.zeros(5, np.float32)
    dy[3, 0], dy[2, 1], dy[9, 1], dy[16, 2], dy[16, 4] = np.inf, np.inf, -np.inf, np.nan, -np.inf
    _run(_repeat_backward_plan((5,), (17,), "f32"), dy=dy.ravel(), dx=dx)
    assert dx[0] == np.inf and np.isnan(dx[1]) and np.isnan(dx[2]) and dx[3] == 17 and dx[4] == -np.inf


@pytest.mark.usefixtures("singles")
def test_gradients_of_alibi_by_single_cells() -> None:
    dy, dslopes = _normal((24, 7, 1, 1), "f32"), np.ones(7, np.float32)
    plan, dscores = _alibi_backward_plan(dy.shape, "f32"), np.zeros_like(dy)
    assert plan._cut is not None and plan._cut.walk == "singles"
    _run(plan, dy=dy, dscores=dscores, dslopes=dslopes)
    assert np.array_equal(dscores, dy) and not dslopes.any()


@pytest.mark.usefixtures("watched")
def test_every_access_is_in_order() -> None:
    for shape in ((2, 3, 5, 16), (1, 2, 3, 33)):
        scores, slopes = _normal(shape, "f32"), _normal(shape[1:2], "f32", 1)
        for how in ("contiguous", "padded", "shifted"):
            y = _laid(scores, how)
            _run(_alibi_plan(shape, "f32"), scores=_laid(scores, how), slopes=slopes, y=y)
            assert np.array_equal(y, _alibi(scores, slopes))
            dslopes = np.zeros(shape[1], np.float32)
            _run(_alibi_backward_plan(shape, "f32"), dy=_laid(scores, how), dscores=y, dslopes=dslopes)
            _run(_alibi_backward_plan(shape, "f32"), dy=y, dscores=y, dslopes=dslopes)
    for shape, repeats in (((3, 33), (3, 2)), ((2, 16), (40, 1)), ((1,), (20000,)), ((3, 1), (700, 2))):
        x, dx = _normal(shape, "f16"), np.zeros(shape, np.float16)
        y = np.zeros_like(np.tile(x, repeats))
        _run(_repeat_plan(shape, repeats, "f16"), x=x, y=y)
        _run(_repeat_backward_plan(shape, repeats, "f16"), dy=y, dx=dx)
        assert np.array_equal(y, np.tile(x, repeats))


def test_wide_indices_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    dy, shape, repeats = _normal((27, 66), "f32"), (9, 22), (3, 3)
    results = []
    for most in (2**31, 1):
        monkeypatch.setattr(map_, "NARROW", most)
        monkeypatch.setattr(map_selection, "NARROW", most)
        RepeatBackwardPlan._selected.clear()
        RepeatPlan._selected.clear()
        dx, y = np.zeros(shape, np.float32), np.zeros((27, 66), np.float32)
        plan = _repeat_backward_plan(shape, repeats, "f32")
        assert plan._wide is (most == 1)
        _run(plan, dy=dy, dx=dx)
        _run(_repeat_plan(shape, repeats, "f32"), x=dx, y=y)
        assert np.array_equal(y, np.tile(dx, repeats))
        results.append(dx)
    RepeatBackwardPlan._selected.clear()
    RepeatPlan._selected.clear()
    assert np.array_equal(*results)


def test_places_beyond_31_bits_are_computed_with_64(watched: None) -> None:
    """A window every 2^31 rows: one, whose place would be negative with 32 bits if there were another."""
    x = _normal((1, 1, 4, 4), "f32")
    for stride, wide in ((2**30, False), (2**31, True), (2**40, True)):
        descriptor = AvgPool2dDescriptor(kernel=1, stride=stride, batch=1, channels=1, height=4, width=4, element="f32")
        plan: Any = AvgPool2dPlan.select(descriptor, device="host")
        y = np.full((1, 1, 1, 1), np.nan, np.float32)
        _run(plan, x=x, y=y)
        assert plan._wide is wide and y[0, 0, 0, 0] == x[0, 0, 0, 0]


@pytest.mark.parametrize(("value", "is_exact"), [(0.5, True), (0.1, False), (math.inf, True), (math.nan, False)])
def test_what_lies_outside_is_a_number_of_the_accumulator(watched: None, value: float, is_exact: bool) -> None:
    """Whether or not arrays can hold it; programs may compute with it before it is rounded."""
    sizes = {"batch": 2, "height": 3, "width": 5, "top": 1, "bottom": 0, "left": 2, "right": 9}
    plan: Any = Pad2dPlan.select(Pad2dDescriptor(**sizes, value=value, element="bf16"), device="host")
    x, y = _normal((2, 3, 5), "bf16"), np.zeros((2, 4, 16), _normal((1,), "bf16").dtype)
    _run(plan, x=x, y=y)
    wanted = np.pad(x, ((0, 0), (1, 0), (2, 9)), constant_values=np.float32(value))
    assert np.array_equal(y, wanted, equal_nan=True)
    assert plan._holds_fills(()) is is_exact


@pytest.mark.parametrize(("wide", "bits"), [(False, 32), (True, 64)])
def test_division_by_multiplication_is_exact(wide: bool, bits: int) -> None:
    rng = np.random.default_rng(0)
    top = 2 ** (bits - 1)
    edges = (2, 3, 7, 10, 255, 256, 641, top // 2 - 1, top // 2, top // 2 + 1, top - 1)
    for d in (*edges, *rng.integers(2, top, 50).tolist()):
        words = space_words((1, d), wide=wide)
        magic, shift = words[2 + MAX_AXES] % 2**bits, words[2 + 2 * MAX_AXES]
        for q in (0, 1, (top - 1) // d, *rng.integers(0, top // d + 1, 20).tolist()):
            for n in (q * d - 1, q * d, q * d + 1, top - 1):
                if 0 <= n < top:
                    assert (n * magic >> bits) >> shift == n // d, (n, d)


def test_a_thousand_shapes_need_few_kernels() -> None:
    rng = np.random.default_rng(0)
    for element in ("bf16", "f64"):
        for plan_of in (_repeat_plan, _repeat_backward_plan):
            sources = set()
            for _ in range(1000):
                rank = int(rng.integers(1, 5))
                shape, repeats = (tuple(rng.integers(1, n, rank).tolist()) for n in (70, 9))
                plan: Any = plan_of(shape, repeats, element)
                views = {
                    n: rt.TensorView(4096, s[0], _row_major(s[0]), rt.ElementKind(element), "host", False, None, None)
                    for n, s in plan.shapes().items()
                }
                launches = plan._launches(views, 0)
                assert len(launches) <= 2
                sources |= {launch.source for launch in launches}
            assert len(sources) <= 8


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: _repeat_plan((), (), "f32"), rt.Unsupported, r"1 <= len\(input_shape\) <= 8"),
        (lambda: _repeat_plan((1,) * 9, (1,) * 9, "f32"), rt.Unsupported, "len"),
        (lambda: _repeat_plan((1, 2), (1,), "f32"), rt.InvalidProblem, "len"),
        (lambda: _repeat_plan((1, -2), (1, 1), "f32"), rt.InvalidProblem, "input_shape"),
        (lambda: _repeat_plan((1, 2), (1, 0), "f32"), rt.InvalidProblem, "repeats"),
        (lambda: _repeat_plan((2**40,), (2**23,), "u8"), rt.InvalidProblem, "63 bits"),
        (lambda: _repeat_plan((0, 2**40), (1, 2**23), "u8"), rt.InvalidProblem, "63 bits"),
        (lambda: _repeat_backward_plan((2**32, 2**16), (2**8, 2**8), "f32"), rt.InvalidProblem, "63 bits"),
        (lambda: _repeat_backward_plan((4,), (2,), "i32"), rt.Unsupported, "element"),
        (lambda: _alibi_plan((2, -1, 3, 4), "f32"), rt.InvalidProblem, ">= 0"),
        (lambda: _alibi_plan((2**20, 2**20, 2**20, 8), "f32"), rt.InvalidProblem, "63 bits"),
        (lambda: _alibi_backward_plan((1,) * 4, "f32", has_dscores=False, has_dslopes=False), rt.InvalidProblem, "or"),
    ],
)  # fmt: skip
def test_what_is_refused(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_what_fits_in_63_bits_is_selected() -> None:
    assert _repeat_plan((2**40 - 1,), (2**23,), "u8")._wide
    assert not _alibi_backward_plan((8, 32, 4096, 2047), "bf16")._wide


def test_arguments_that_cannot_work_are_refused() -> None:
    plan, x = _repeat_plan((3, 4), (2, 2), "f32"), np.zeros((3, 4), np.float32)
    with pytest.raises(rt.InvalidProblem, match="'y' must have shape"):
        plan.run(x=x, y=np.zeros((6, 4), np.float32))
    with pytest.raises(rt.InvalidProblem, match="must not overlap"):
        plan.run(x=x, y=np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (6, 8), (0, 4)))
    with pytest.raises(rt.BufferTooSmall):
        plan.run(x=x, y=rt.TensorRef(np.zeros(47, np.float32), (6, 8)))
    packed = RepeatPlan.select(plan.descriptor, layouts=["packed"])
    with pytest.raises(rt.Unsupported, match="strided"):
        packed.run(x=x, y=np.zeros((8, 6), np.float32).T[:, ::-1])


def _finding(tmp_path: Path, op: str, *edits: tuple[str, str]) -> str:
    text = (LONG / f"{op}.yaml").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / f"{op}.yaml"
    path.write_text(text)
    with pytest.raises(rt.SpecError) as caught:
        load_spec(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "old", "new", "says"),
    [
        ("repeat", "cell: {of: input_shape}", "cell: {of: input_shap}", "did you mean 'input_shape'?"),
        ("repeat", "{dims: [copy * cell]", "{dims: [copy * sell]", "unknown dim 'sell'"),
        ("repeat", "{dims: [copy * cell]", "{dims: [copy *]", "is neither a dim nor a product of dims"),
        ("repeat", "{dims: [copy * cell]", "{dims: [copy * copy]", "names a dim twice"),
        ("repeat", "{dims: [copy * cell]", "{dims: [copy]", "'y' varies along cell, which its dims do not list"),
        ("repeat", "  y = x\nreference", "  y = x + 1\nreference", "u64 can only be moved"),
        ("repeat_backward", "sum(dy, copy)", "max(dy > 0, copy)", "max takes numbers, got a bool; write count("),
        ("repeat_backward", "sum(dy, copy)", "any(dy, copy)", "any takes a bool, got float; compare, as in any(x > 0"),
        ("repeat_backward", "sum(dy, copy)", "argmax(dy)", "argmax needs the dims it runs over, as in argmax(x, "),
        ("repeat_backward", "sum(dy, copy)", "sum(dy, copy, copy)", "reduces over a dim twice: copy, copy"),
        ("repeat_backward", "sum(dy, copy)", "dy", "'dx' varies along copy"),
        ("alibi", "slopes: {dims: [head]", "while: {dims: [head]", "'while' is a reserved word"),
        ("alibi_backward", "batch, query, key)\n", "batch, query)\n", "varies along key"),
        ("alibi_backward", "dslopes: [det", "dslopes: [batch_invariant, det", "drop batch_invariant"),
    ],
)  # fmt: skip
def test_specs_that_contradict_themselves(tmp_path: Path, op: str, old: str, new: str, says: str) -> None:
    assert says in _finding(tmp_path, op, (old, new))


def test_lines_that_need_sums_read_kept_inputs_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no op of ours does: two sums, one of them nameless, a mean of them, scaled by a kept input."""
    text = (LONG / "repeat_backward.yaml").read_text()
    text = text.replace("op: repeat_backward", "op: spread").replace("RepeatBackwardPlan", "SpreadPlan")
    text = text.replace("check_order: [dx, dy]\n", "").replace(
        "outputs:\n", "  gain: {dims: [cell], doc: a factor}\noutputs:\n"
    )
    text = text.replace(
        "  dx = sum(dy, copy)\ngradient:\n  of: repeat\n  cotangents: {dy: y}\n  wrt: {dx: x}\n",
        "  square = dy * dy\n  total = sum(square, copy)\n  dx = gain * (total + sum(dy, copy)) / size(copy)\n"
        "reference: |\n  dx = gain * sum(dy * dy + dy, copy) / size(copy)\n",
    )
    path = tmp_path / "spread.yaml"
    path.write_text(text)
    files = texts([lower(load_spec(path).spec, "spread.yaml")])
    module: Any = ModuleType("spread")
    module.__package__ = "spread"
    monkeypatch.setitem(sys.modules, "spread", module)
    exec(compile(files["shape_layout/spread.py"], "spread.py", "exec"), module.__dict__)
    monkeypatch.setattr(map_geometry, "_MANY_CELLS", 21)
    for shape, walk in (((3, 8), "columns"), ((3, 7), "singles"), ((3, 1), "rows")):
        plan = module.SpreadPlan.select(module.SpreadDescriptor(input_shape=shape, repeats=(40, 2), element="f32"))
        assert plan._cut.walk == walk
        source = replace(plan._row.source, inline=files["shape_layout/spread.cu"])
        plan._row = replace(plan._row, source=source)
        dy, gain, dx = _normal((120, 2 * shape[1]), "f32"), _normal(shape, "f32", 1), np.zeros(shape, np.float32)
        _run(plan, dy=dy, gain=gain, dx=dx)
        wide = dy.astype(np.float64).reshape(40, 3, 2, shape[1])
        assert np.allclose(dx, gain * (wide**2 + wide).sum((0, 2)) / 80, rtol=1e-5)


PACK8 = """\
op: pack8
category: sample
direction: forward
plan: Pack8Plan
family: map
doc: Cells times factors, in 8-bit floats.
formula: |
  y = x * scale
source: the definition of the product
descriptor:
  shape: {type: shape, doc: extents of x and y}
require:
  - {that: 1 <= len(shape) <= 8, raises: Unsupported}
  - {that: min(shape) >= 0, raises: InvalidProblem}
dtypes: [f32, f16, bf16]
dims:
  cell: {of: shape}
inputs:
  x: {dims: [cell], doc: what is packed}
  scale: {dims: [cell], dtype: [f8e5m2, T], doc: factors}
outputs:
  y: {dims: [cell], dtype: [f8e4m3, f8e5m2], doc: "x * scale, rounded to the nearest"}
program: |
  y = x * scale
reference: |
  y = x * scale
reproducibility:
  y: [deterministic, bit_stable_on_same_hardware, bit_stable_across_arch]
arch: {sm_80: {}}
tests:
  cases:
    - {shape: [7, 33]}
    - {shape: [4, 64]}
    - {shape: [4, 0]}
"""


def test_a_program_of_cells_reads_and_stores_8_bit_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows from such a spec holds on the host device, and NVRTC compiles it, whether GPUs convert or not."""
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "pack8.yaml").write_text(PACK8)
    generate(specs, tmp_path / "packing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert run(specs, "packing", extra=["-k", "(accuracy or layouts or special_values or stored_types) and f16"]) == 0
    project = Project.read(specs)
    chosen = sample(variants_of(project, archs=("sm_80", "sm_90"), package="packing"), of_an_op=8)
    audit = Audit.of(chosen, project.ops)
    assert not audit.failed and not audit.violations and len(audit.audited) == 8


@pytest.mark.parametrize(
    ("kind", "got", "right"), [("f8e4m3", np.nan, True), ("f8e5m2", np.nan, False), ("f8e5m2", np.inf, True)]
)
def test_what_overflows_in_8_bits(kind: str, got: float, right: bool) -> None:
    """Is NaN where there is no infinity, and nothing else is."""
    for expected, held in ((1e6, right), (np.inf, right), (400.0, False)):
        assert (compare(got, expected, 1.0, rt.ElementKind(kind)).worst_ratio <= 1) == held


def test_generated_files_are_current() -> None:
    ops = [lower(one.spec, one.display_path) for one in load_folder(SPECS).values() if one.spec.family == "map"]
    generated = ROOT / "generated"
    for path, text in texts(ops).items():
        if "/" in path and not path.endswith("__init__.py"):
            assert (generated / path).read_text() == text, f"{path} is stale; run baracuda-gen generate"
