"""Plans that may use no workspace take the kernel that needs none, where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda.generated as plans
import baracuda.runtime as rt

NONE = rt.PlanPreference(max_workspace_bytes=0)
RNG = np.random.default_rng(0)


def flash(element: str) -> Any:
    sizes = {"batch_size": 1, "num_heads": 8, "query_len": 1, "key_len": 8192, "d_k": 128, "d_v": 128}
    return plans.FlashSdpaDescriptor(**sizes, scale=128**-0.5, is_causal=False, element=element)


def test_sums_of_one_block_each_need_no_workspace() -> None:
    dy = RNG.standard_normal((100_000,), np.float32)
    descriptor = plans.RepeatBackwardDescriptor(input_shape=(4,), repeats=(25_000,), element="f32")
    shared, alone = (plans.RepeatBackwardPlan.select(descriptor, preference) for preference in (None, NONE))
    assert shared.workspace_bytes > 0 == alone.workspace_bytes
    assert alone.sku == next(v.sku for v in plans.RepeatBackwardPlan.explain(descriptor, NONE).verdicts if v)
    expected = dy.reshape(-1, 4).astype(np.float64).sum(axis=0)
    for plan in (shared, alone):
        dx = np.full(4, np.nan, np.float32)
        plan.run(dy=dy, dx=dx, workspace=np.empty(plan.workspace_bytes, np.uint8) if plan.workspace_bytes else None)
        assert np.allclose(dx, expected, rtol=1e-6)


def test_alibi_gradients_need_no_workspace() -> None:
    descriptor = plans.AlibiBackwardDescriptor(
        batch_size=2, num_heads=3, query_len=64, key_len=512, has_dscores=False, has_dslopes=True, element="f32"
    )
    shared, alone = (plans.AlibiBackwardPlan.select(descriptor, preference) for preference in (None, NONE))
    assert shared.workspace_bytes > 0 == alone.workspace_bytes
    dy, dslopes = RNG.standard_normal((2, 3, 64, 512), np.float32), np.full(3, np.nan, np.float32)
    alone.run(dy=dy, dslopes=dslopes)
    distance = np.arange(512)[None, :] - np.arange(64)[:, None]
    assert np.allclose(dslopes, (dy.astype(np.float64) * distance).sum((0, 2, 3)), rtol=1e-6)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "f64"])
def test_few_queries_are_not_split(element: str) -> None:
    split, alone = (plans.FlashSdpaPlan.select(flash(element), preference) for preference in (None, NONE))
    assert split.workspace_bytes > 0 == alone.workspace_bytes
    assert "splits" in str(split.sku.schedule) and "splits" not in str(alone.sku.schedule)


def test_without_such_a_kernel_each_says_what_it_needs() -> None:
    descriptor = plans.RMSNormBackwardDescriptor(input_shape=(64, 64), norm_axes_mask=2, has_gamma=True, element="f32")
    needed = plans.RMSNormBackwardPlan.select(descriptor).workspace_bytes
    with pytest.raises(rt.Unsupported, match=rf"needs a workspace of {needed} bytes, max_workspace_bytes is 0"):
        plans.RMSNormBackwardPlan.select(descriptor, NONE)


def test_partial_sums_have_room_for_the_results_that_are_wanted() -> None:
    sizes = {"batch_size": 2, "channels": 64, "seq_len": 24, "width": 4, "num_sequences": 2}
    descriptors = (
        plans.CausalConv1dBackwardDescriptor(**sizes, use_silu=True, has_bias=True, has_db=has_db, element="f32")
        for has_db in (True, False)
    )
    both, taps = map(plans.CausalConv1dBackwardPlan.select, descriptors)
    assert both.sku == taps.sku and both.workspace_bytes * 4 == taps.workspace_bytes * 5 > 0
