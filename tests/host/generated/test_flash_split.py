"""Invariant: few queries deal the keys of a head to parts that depend on no batch, and the parts make one softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from baracuda.checking.oracles.references import definition
from baracuda.checking.trials.memory import check_mode
from baracuda.cli.kernels.explain import Architecture
from baracuda.generated import FlashSdpaDescriptor, FlashSdpaPlan, FlashSdpaSm89Plan, FlashSdpaSm90Plan
from baracuda.runtime import PlanPreference, Schedule

Arrays = dict[str, np.ndarray[Any, Any]]
SMALL = {"batch_size": 2, "num_heads": 2, "num_kv_heads": 1, "query_len": 1, "key_len": 600, "d_k": 8, "d_v": 8}


def described(element: str = "f32", **changes: Any) -> FlashSdpaDescriptor:
    return FlashSdpaDescriptor(**{**SMALL, "scale": 0.4, "is_causal": False, "element": element, **changes})


def drawn(d: FlashSdpaDescriptor) -> Arrays:
    random = np.random.default_rng(3)
    shapes = {n: s[0] for n, s in FlashSdpaPlan.select(d).shapes().items() if n in ("q", "k", "v")}
    arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if d.has_mask:
        arrays["mask"] = np.zeros((d.batch_size, d.num_heads, d.query_len, d.key_len), np.float32)
    return arrays


def attend(d: FlashSdpaDescriptor, arrays: Arrays) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    plan = FlashSdpaPlan.select(d, device="host")
    assert is_split(plan.sku.schedule)
    rows = (d.batch_size, d.num_heads, d.query_len)
    y, lse = np.full((*rows, d.d_v), 9, np.float32), np.full(rows, 9, np.float32)
    plan.run(**arrays, y=y, lse=lse, workspace=np.full(plan.workspace_bytes // 4, np.nan, np.float32))
    return y, lse


def expected(d: FlashSdpaDescriptor, arrays: Arrays) -> dict[str, Any]:
    fields = {name: getattr(d, name) for name in d._types}
    values = definition("attention.flash_sdpa").values
    assert values is not None
    with np.errstate(invalid="ignore", over="ignore"):
        return values(np, fields, {name: a.astype(np.float64) for name, a in arrays.items()})


def is_split(schedule: object) -> bool:
    return isinstance(schedule, Schedule) and "splits" in dict(schedule.numbers)


@pytest.fixture
def checked() -> Iterator[None]:
    with check_mode():
        yield


@pytest.mark.parametrize("group", range(1, 9))
@pytest.mark.parametrize("queries", [1, 3])
def test_heads_that_share_keys(group: int, queries: int, checked: None) -> None:
    """Rows of a group fill a tile, a part of one or more; parts before a window or behind causality are empty."""
    sizes = {"num_heads": 2 * group, "num_kv_heads": 2, "query_len": queries, "key_len": 1100}
    for band in ({}, {"window_left": 300, "bottom_right": True}, {"is_causal": True}):
        d = described(batch_size=1, **sizes, **band)
        arrays = drawn(d)
        y, lse = attend(d, arrays)
        exact = expected(d, arrays)
        np.testing.assert_allclose(y, exact["y"], rtol=0, atol=4e-6)
        np.testing.assert_allclose(lse, exact["lse"], rtol=1e-6, atol=1e-6)


def test_rows_without_keys(checked: None) -> None:
    """A query whose every key is excluded is zero; one whose keys are all in one part is that part's."""
    d = described(query_len=2, has_mask=True)
    arrays = drawn(d)
    arrays["mask"][0, 0, 0] = arrays["mask"][1, 1, 1] = -np.inf
    arrays["mask"][0, 1, 0, :300] = arrays["mask"][0, 1, 1, 256:] = -np.inf
    y, lse = attend(d, arrays)
    exact = expected(d, arrays)
    for b, h, i in ((0, 0, 0), (1, 1, 1)):
        assert not y[b, h, i].any() and lse[b, h, i] == -np.inf
    np.testing.assert_allclose(y, exact["y"], rtol=0, atol=4e-6)
    np.testing.assert_allclose(lse, exact["lse"], rtol=1e-6, atol=1e-6)


def test_what_is_not_finite(checked: None) -> None:
    """A NaN in a query stays in its row, one in a key or a value reaches the rows of its head of keys."""
    d = described(num_heads=4, num_kv_heads=2)
    for name, index, rows in (
        ("q", (0, 1, 0, 3), [(0, 1)]),
        ("k", (0, 1, 590, 0), [(0, 2), (0, 3)]),
        ("v", (1, 0, 0, 5), [(1, 0), (1, 1)]),
    ):
        arrays = drawn(d)
        arrays[name][index] = np.nan
        y, lse = attend(d, arrays)
        hit = np.zeros((2, 4), bool)
        for row in rows:
            hit[row] = True
        np.testing.assert_array_equal(np.isnan(y).any(axis=(2, 3)), hit)
        np.testing.assert_array_equal(np.isnan(lse[..., 0]), hit if name != "v" else np.zeros_like(hit))


def test_far_scores(checked: None) -> None:
    """Parts whose largest scores are far apart neither overflow nor lose the largest."""
    d = described()
    arrays = drawn(d)
    arrays["k"][:, :, :256] *= 3000
    y, lse = attend(d, arrays)
    exact = expected(d, arrays)
    np.testing.assert_allclose(lse, exact["lse"], rtol=1e-6, atol=1e-6)
    assert np.isfinite(y).all() and abs(y - exact["y"]).max() < 1e-2


def test_parts_follow_from_keys_and_heads() -> None:
    """The workspace is what the parts fill, one for each row and part, whatever the batch and the device."""
    counts = {(512, 8): 2, (600, 8): 3, (4096, 8): 16, (32768, 8): 32, (32768, 1): 128, (32768, 300): 1}
    for (keys, heads), parts in counts.items():
        for batch in (1, 5):
            d = described("bf16", batch_size=batch, num_heads=heads, num_kv_heads=heads, key_len=keys)
            plan = FlashSdpaPlan.select(d, PlanPreference(archs=frozenset({"sm_80"})))
            assert is_split(plan.sku.schedule)
            assert plan.workspace_bytes == 4 * sum(-(-batch * heads * parts * n // 4) * 4 for n in (8, 1, 1))


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_few_queries_come_before_the_own_architecture(arch: str, element: str) -> None:
    device = Architecture(arch, arch)
    chosen = FlashSdpaPlan.select(described(element, d_k=128, d_v=128), device=device).sku
    assert is_split(chosen.schedule) and chosen.arch == "sm_80"
    for changes in ({"key_len": 511}, {"query_len": 17}, {"num_heads": 65}):
        assert not is_split(FlashSdpaPlan.select(described(element, **changes), device=device).sku.schedule)


def test_pinned_plans_keep_their_kernels() -> None:
    """They, and who asks for an architecture, get that one's kernels for few queries too, and no workspace."""
    hopper, ada = Architecture("sm_90", "sm_90"), Architecture("sm_89", "sm_89")
    preferred = PlanPreference(archs=frozenset({"sm_90a"}))
    for plan, arch in (
        (FlashSdpaSm90Plan.select(described("bf16"), device=hopper), "sm_90a"),
        (FlashSdpaSm89Plan.select(described("bf16"), device=ada), "sm_89"),
        (FlashSdpaPlan.select(described("bf16"), preferred, device=hopper), "sm_90a"),
    ):
        assert plan.sku.arch == arch and plan.workspace_bytes == 0
    (first, *_) = FlashSdpaPlan.explain(described("bf16"), device=hopper).verdicts
    assert first.accepted and first.sku is not None and is_split(first.sku.schedule)
