"""Invariant: products whose matrices have parts of the rows or of the depth read and write these alone, wherever ends
in memory say that they are, and have the bits of products of one matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda.checking.trials.memory import check_mode
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec
from baracuda.generated import DenseGemmDescriptor, DenseGemmPlan, GroupedMmBackwardDescriptor, GroupedMmBackwardPlan
from baracuda.runtime.families.matmul.schedules import SCHEDULES

Array = np.ndarray[Any, Any]
OUTER = """\
op: grouped_outer
doc: A sample.
family: matmul
dtypes: [bf16, f32]
descriptor: {tokens: int, groups: int, m: int, n: int}
dims: {token: tokens, group: groups, row: m, col: n}
inputs:
  a: {dims: [token, row]}
  b: {dims: [token, col]}
  ends: {dims: [group], dtype: i32}
outputs: {y: {dims: [group, row, col]}}
program: |
  g = min(where(index(token) < ends, index(group), size(group)), group)
  y = sum(where(g == index(group), a * b, 0.0), token)
tests: {ranges: {ends: [0, 9]}}
"""
ROWS = """\
op: grouped_rows
doc: A sample.
family: matmul
dtypes: [bf16, f32]
descriptor: {tokens: int, groups: int, n: int, k: int}
dims: {token: tokens, group: groups, col: n, depth: k}
inputs:
  x: {dims: [token, depth]}
  w: {dims: [group, col, depth]}
  ends: {dims: [group], dtype: i64}
outputs: {y: {dims: [token, col]}}
program: |
  g = min(where(index(token) < ends, index(group), size(group)), group)
  y = sum(where(g == index(group), x * w, 0.0), group, depth)
tests: {ranges: {ends: [0, 9]}}
"""
MASKED = """\
op: masked_rows
doc: A sample.
family: matmul
dtypes: [bf16, f32]
descriptor: {groups: int, m: int, n: int, k: int}
dims: {group: groups, row: m, col: n, depth: k}
inputs:
  x: {dims: [group, row, depth]}
  w: {dims: [group, col, depth]}
  counts: {dims: [group], dtype: i32}
outputs: {y: {dims: [group, row, col]}}
program: y = sum(where(counts > index(row), x * w, 0.0), depth)
tests: {ranges: {counts: [0, 9]}}
"""
# Where groups of 300 rows end: a tile more and less, none, all in one, and what is no place at all.
ENDS = {
    "around tiles": [0, 1, 128, 257, 257, 284],
    "none": [0, 0, 0],
    "one": [300],
    "the last of three": [0, 0, 300],
    "no groups": [],
    "decreasing": [200, 100, 50, 250],
    "out of range": [-7, 2**31 - 1, -(2**31), 5],
    "small ones": [*range(1, 40, 3), 300],
}
USUAL = ("around tiles", "out of range")  # for every tile; the others for one of a kind
TILES = [(arch, text) for arch, tags, text in SCHEDULES if "bf16" in tags and "alternate1" not in text]
TILES += [(arch, text) for arch, tags, text in SCHEDULES if "f32" in tags]
SOME = [TILES[0], TILES[-3], TILES[-2]]
PROBLEMS = [(*tile, name) for name in ENDS for tile in (TILES if name in USUAL else SOME)]
OF_TILES = pytest.mark.parametrize(("arch", "tile", "name"), PROBLEMS, ids=[f"{n}-{t}" for _, t, n in PROBLEMS])


@pytest.fixture
def watched() -> Iterator[None]:
    with check_mode():
        yield


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {}
    for text in (OUTER, ROWS, MASKED):
        path = tmp_path_factory.mktemp("specs") / "sample.yaml"
        path.write_text(text)
        op = lower(load_spec(path).spec, "sample.yaml")
        (source,) = (of for name, of in texts([op]).items() if name.endswith(".cu"))
        plan = plan_of(op, rows_of(op, source))
        found[plan.OP] = plan
    return found


def segments(ends: list[int], tokens: int) -> list[tuple[int, int]]:
    begin, found = 0, []
    for end in ends:
        found.append((begin, begin := min(max(begin, end), tokens)))
    return found


def selected(plan: Any, arch: str, schedule: str, **fields: Any) -> Any:
    element = "f32" if "across2" in schedule else "bf16"
    kind = np.float32 if element == "f32" else ml_dtypes.bfloat16
    pinned = rt.PlanPreference(archs=frozenset({arch}), schedules=frozenset({schedule}))
    return plan.select(plan.DESCRIPTOR(**fields, element=element), pinned), kind


def product(a: Array, b: Array) -> Array:
    """Of one matrix, by the portable kernel."""
    (m, k), n = a.shape, b.shape[1]
    element = "f32" if a.dtype == np.float32 else "bf16"
    sizes = DenseGemmDescriptor(batch_size=1, m=m, n=n, k=k, element=element)
    y = np.zeros((1, m, n), a.dtype)
    DenseGemmPlan.select(sizes, rt.PlanPreference(archs=frozenset({"sm_80"}))).run(a=a[None], b=b[None], y=y)
    return y[0]


def drawn(seed: int, kind: Any, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(kind) for shape in shapes]


@pytest.mark.usefixtures("watched")
@OF_TILES
def test_rows_of_a_group_are_multiplied_by_its_matrix(plans: Any, arch: str, tile: str, name: str) -> None:
    ends = ENDS[name]
    tokens, n, k, groups = 300, 136, 72, len(ends)
    plan, kind = selected(plans["grouped_rows"], arch, tile, tokens=tokens, groups=groups, n=n, k=k)
    x, w = drawn(1, kind, (tokens, k), (groups, n, k))
    x[segments(ends, tokens)[-1][1] if ends else 0 :] = np.nan  # of no group
    y = np.full((tokens, n), 7, kind)
    scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8)
    plan._run((x, w, np.array(ends, np.int64), y), scratch, None)
    expected = np.zeros_like(y)
    for matrix, (begin, end) in zip(w, segments(ends, tokens), strict=True):
        expected[begin:end] = product(x[begin:end], matrix.T)
    assert y.tobytes() == expected.tobytes()


PAIRS = [text for arch, text in TILES if "cluster2" in text][:1]


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("tile", PAIRS)
def test_pairs_of_tiles_are_below_or_beside_each_other(plans: Any, tile: str) -> None:
    """An odd number of tiles of rows, and of columns, with terms and without."""
    ends, tokens, n, k = [0, 260, 390, 395, 395, 651], 790, 520, 24
    plan, kind = selected(plans["grouped_rows"], "sm_90a", tile, tokens=tokens, groups=len(ends), n=n, k=k)
    x, w = drawn(5, kind, (tokens, k), (len(ends), n, k))
    y = np.full((tokens, n), 7, kind)
    plan._run((x, w, np.array(ends, np.int64), y), np.zeros(plan.workspace_bytes, np.uint8), None)
    expected = np.zeros_like(y)
    for matrix, (begin, end) in zip(w, segments(ends, tokens), strict=True):
        expected[begin:end] = product(x[begin:end], matrix.T)
    assert y.tobytes() == expected.tobytes()
    counts, m = [0, 1, 129, 300, 2000], 300
    plan, kind = selected(plans["masked_rows"], "sm_90a", tile, groups=len(counts), m=m, n=n, k=k)
    x, w = drawn(6, kind, (len(counts), m, k), (len(counts), n, k))
    y = np.full((len(counts), m, n), 7, kind)
    plan._run((x, w, np.array(counts, np.int32), y), np.zeros(plan.workspace_bytes, np.uint8), None)
    for of, rows, matrix, count in zip(y, x, w, counts, strict=True):
        assert of[:count].tobytes() == product(rows[:count], matrix.T).tobytes()
        assert not of[count:].any()


@pytest.mark.usefixtures("watched")
@OF_TILES
def test_a_group_sums_over_its_rows(plans: Any, arch: str, tile: str, name: str) -> None:
    ends = ENDS[name]
    tokens, m, n, groups = 300, 72, 136, len(ends)
    plan, kind = selected(plans["grouped_outer"], arch, tile, tokens=tokens, groups=groups, m=m, n=n)
    a, b = drawn(2, kind, (tokens, m), (tokens, n))
    a[segments(ends, tokens)[-1][1] if ends else 0 :] = np.nan
    y = np.full((groups, m, n), 7, kind)
    scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8)
    plan._run((a, b, np.array(ends, np.int32), y), scratch, None)
    for of, (begin, end) in zip(y, segments(ends, tokens), strict=True):
        assert of.tobytes() == product(a[begin:end].T, b[begin:end]).tobytes()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(("arch", "tile"), TILES, ids=[text for _, text in TILES])
def test_rows_beyond_a_count_are_zero(plans: Any, arch: str, tile: str) -> None:
    counts, m, n, k = [0, 1, 127, 128, 129, 300, -5, 2**31 - 1, 160], 160, 72, 72
    plan, kind = selected(plans["masked_rows"], arch, tile, groups=len(counts), m=m, n=n, k=k)
    x, w = drawn(3, kind, (len(counts), m, k), (len(counts), n, k))
    for of, count in zip(x, counts, strict=True):
        of[min(max(count, 0), m) :] = np.nan
    y = np.full((len(counts), m, n), 7, kind)
    scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8)
    plan._run((x, w, np.array(counts, np.int32), y), scratch, None)
    for of, rows, matrix, count in zip(y, x, w, counts, strict=True):
        count = min(max(count, 0), m)
        assert of[:count].tobytes() == product(rows[:count], matrix.T).tobytes()
        assert not of[count:].any()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gradients_of_groups(arch: str) -> None:
    """Whatever lies beside the rows of a group, and where packs are no multiples of 16 bytes."""
    ends, tokens = np.array([3, 3, 70, 90], np.int32), 100
    for n, k in ((40, 24), (33, 17)):
        fields = {"tokens": tokens, "groups": 4, "in_features": k, "out_features": n, "element": "bf16"}
        plan = GroupedMmBackwardPlan.select(
            GroupedMmBackwardDescriptor(**fields), rt.PlanPreference(archs=frozenset({arch}))
        )
        dy, x, w = drawn(4, ml_dtypes.bfloat16, (tokens, n), (tokens, k), (4, n, k))
        dx, dw = np.full_like(x, 7), np.full_like(w, 7)
        scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8)
        plan.run(dy=dy, x=x, w=w, ends=ends, dx=dx, dw=dw, workspace=scratch)
        assert not dx[90:].any()
        for g, (begin, end) in enumerate(segments(ends.tolist(), tokens)):
            assert dx[begin:end].tobytes() == product(dy[begin:end], w[g]).tobytes()
            assert dw[g].tobytes() == product(dy[begin:end].T, x[begin:end]).tobytes()
