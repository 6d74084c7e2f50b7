"""Invariant: probabilities by tiles are those of the definition, where keys are hidden, masked or not finite too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda.checking.trials.memory import check_mode
from baracuda.generated import SdpaBackwardDescriptor, SdpaBackwardPlan, SdpaDescriptor, SdpaPlan

SIZES = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1, "query_len": 70, "key_len": 200, "d_k": 8, "d_v": 16}


def drawn(plan: Any, names: str) -> dict[str, Any]:
    random = np.random.default_rng(5)
    return {name: random.standard_normal(plan.shapes()[name][0]).astype(np.float16) for name in names.split()}


def attend(d: SdpaDescriptor, arrays: dict[str, Any]) -> tuple[Any, Any]:
    plan = SdpaPlan.select(d, device="host")
    attn, y = (np.full(plan.shapes()[name][0], 9, np.float16) for name in ("attn", "y"))
    with check_mode():
        plan.run(**arrays, attn=attn, y=y)
    return attn.astype(np.float64), y.astype(np.float64)


def defined(d: SdpaDescriptor, arrays: dict[str, Any]) -> tuple[Any, Any]:
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    with np.errstate(all="ignore"):
        s = d.scale * q @ k.swapaxes(2, 3) + arrays.get("mask", np.float64(0))
        hidden = np.triu(np.ones(s.shape[2:], bool), 1) if d.is_causal else np.zeros(s.shape[2:], bool)
        s = np.where(hidden, -np.inf, s)
        high = s.max(axis=-1, keepdims=True)
        power = np.exp(s - np.where(high == -np.inf, 0, high))
        total = power.sum(axis=-1, keepdims=True)
        attn = power / np.where(total == 0, 1, total)
        return attn, attn @ v


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("name", "index", "value"),
    [("q", (0, 0, 0, 0), 0), ("k", (0, 0, 1, 3), np.inf), ("k", (0, 0, 199, 0), np.nan), ("v", (0, 0, 190, 2), np.nan)],
)
def test_what_is_not_finite(name: str, index: tuple[int, ...], value: float, is_causal: bool) -> None:
    """It reaches the probabilities of keys that are hidden, and each query meets each value, if with weight 0."""
    d = SdpaDescriptor(**SIZES, scale=0.3, is_causal=is_causal, element="f16")
    arrays = drawn(SdpaPlan.select(d), "q k v")
    arrays[name][index] = value
    for got, expected in zip(attend(d, arrays), defined(d, arrays), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


def test_rows_that_see_nothing() -> None:
    d = SdpaDescriptor(**SIZES, scale=0.3, is_causal=True, has_mask=True, element="f16")
    arrays = drawn(SdpaPlan.select(d), "q k v mask")
    arrays["mask"][0, 1, 5] = arrays["mask"][0, 0, 69, :64] = -np.inf
    attn, y = attend(d, arrays)
    assert not attn[0, 1, 5].any() and not y[0, 1, 5].any()
    for got, expected in zip((attn, y), defined(d, arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


def test_no_memory_for_scores() -> None:
    """Halves need none forward and one array of dS backward; wider heads and other elements keep floats."""
    count = 4 * 16 * 1024 * 1024
    large = {**SIZES, "batch_size": 4, "num_heads": 16, "query_len": 1024, "key_len": 1024}
    for element, width, forward, backward in (("bf16", 64, 0, 2), ("bf16", 264, 4, 4), ("f32", 64, 4, 4)):
        sizes = {**large, "d_k": width, "d_v": width, "scale": 0.1, "element": element}
        assert SdpaPlan.select(SdpaDescriptor(**sizes, is_causal=False)).workspace_bytes == forward * count
        assert SdpaBackwardPlan.select(SdpaBackwardDescriptor(**sizes)).workspace_bytes == backward * count
