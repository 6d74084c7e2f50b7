"""Invariant: parts of a product's depth are multiplied with what the program reads for them, whichever rows, columns
and parts share an element, and the bits of a row follow from it alone: in every tile, of every group."""

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
from baracuda.generated import BlockScaledMmPlan, GroupedBlockScaledMmPlan
from baracuda.runtime.families.matmul.schedules import SCHEDULES

Array = np.ndarray[Any, Any]
MIXED = """\
op: mixed_weights
doc: A weight of three inputs of other types, which share elements along other dims.
family: matmul
descriptor: {g: int, m: int, n: int, k: int}
dtypes: [bf16, f32]
dims: {matrix: g, row: m, col: n, depth: k, part: "ceil_div(k, 256)", four: "ceil_div(m, 4)", block: "ceil_div(n, 96)"}
inputs:
  a: {dims: [matrix, row, depth], dtype: [f8e4m3, f8e5m2]}
  b: {dims: [matrix, col, depth], dtype: f8e4m3}
  power: {dims: [col, part], dtype: u8, outside: 0}
  scale: {dims: [matrix, four, part], dtype: bf16, outside: 0}
  of_block: {dims: [block], dtype: f32, outside: 0}
  bias: {dims: [col]}
outputs: {y: {dims: [matrix, row, col]}}
program: |
  s = exp2(power[col, depth // 256] - 7.0) * scale[matrix, row // 4, depth // 256]
  y = relu(sum(b * of_block[col // 96] * a * s, depth) + bias)
tests: {ranges: {power: [0, 14]}}
"""
TILES = [(arch, text) for arch, tags, text in SCHEDULES if "f8e4m3" in tags]
OF_TILES = pytest.mark.parametrize(("arch", "tile"), TILES, ids=[text for _, text in TILES])


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    with check_mode():
        yield


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("specs") / "sample.yaml"
    path.write_text(MIXED)
    op = lower(load_spec(path).spec, "sample.yaml")
    (source,) = (of for name, of in texts([op]).items() if name.endswith(".cu"))
    return plan_of(op, rows_of(op, source))


def run(plan_class: Any, arch: str, tile: str, fields: dict[str, int], arrays: list[Array], shape: Any) -> Array:
    pinned = rt.PlanPreference(archs=frozenset({arch}), schedules=frozenset({tile}))
    plan = plan_class.select(plan_class.DESCRIPTOR(**fields, element="f32"), pinned)
    y = np.full(shape, 7, np.float32)
    plan._run((*arrays, y), np.full(plan.workspace_bytes, 0xAA, np.uint8), None)
    return y


def eights(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(ml_dtypes.float8_e4m3fn)


@OF_TILES
def test_elements_are_shared_along_any_dims(mixed: Any, arch: str, tile: str) -> None:
    rng, (g, m, n, k) = np.random.default_rng(1), (2, 70, 200, 528)
    a, b = eights(rng, g, m, k), eights(rng, g, n, k)
    power = rng.integers(0, 15, (n, 3)).astype(np.uint8)
    scale = rng.normal(size=(g, 18, 3)).astype(ml_dtypes.bfloat16)
    of_block, bias = rng.normal(size=3).astype(np.float32), rng.normal(size=n).astype(np.float32)
    y = run(mixed, arch, tile, {"g": g, "m": m, "n": n, "k": k}, [a, b, power, scale, of_block, bias], (g, m, n))
    part, row, col = np.arange(k) // 256, np.arange(m) // 4, np.arange(n) // 96
    left = a.astype(float) * scale.astype(float)[:, row][:, :, part]
    right = b.astype(float) * (np.exp2(power - 7.0)[:, part] * of_block[col][:, None])
    expected = np.maximum(left @ right.transpose(0, 2, 1) + bias, 0)
    least = 2.0**-11 * (np.abs(left) @ np.abs(right).transpose(0, 2, 1))
    assert (np.abs(y - expected) <= least + 1e-6).all()


@OF_TILES
@pytest.mark.parametrize("addressable", [True, False])
def test_rows_of_a_group_have_the_bits_of_its_product(arch: str, tile: str, addressable: bool) -> None:
    ends, tokens, n, k = [0, 1, 150, 150, -3, 170], 180, 136, 272
    rng, groups, gap = np.random.default_rng(2), len(ends), 0 if addressable else 3
    x, w = eights(rng, tokens, k + gap)[:, :k], eights(rng, groups, n, k + gap)[:, :, :k]
    of_x, of_w = np.exp(rng.normal(size=(tokens, 3))), np.exp(rng.normal(size=(groups, 2, 3)))
    scales = of_x.astype(np.float32), of_w.astype(np.float32)
    sizes = {"tokens": tokens, "groups": groups, "in_features": k, "out_features": n}
    arrays = [x, w, *scales, np.array(ends, np.int32)]
    y = run(GroupedBlockScaledMmPlan, arch, tile, sizes, arrays, (tokens, n))
    first, begin = next(text for of, text in TILES if of == arch), 0
    for group, end in enumerate(ends):
        rows, begin = slice(begin, max(begin, end)), max(begin, end)
        m = rows.stop - rows.start
        of_group = [x[rows], w[group], scales[0][rows], scales[1][group]]
        alone = run(BlockScaledMmPlan, arch, first, {"m": m, "n": n, "k": k}, of_group, (m, n))
        assert y[rows].tobytes() == alone.tobytes()
    assert not y[begin:].any()
