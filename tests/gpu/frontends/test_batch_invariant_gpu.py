"""Invariant: on a GPU, rows and sequences of the sizes of models have the same bits in batches of every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda.frontends.torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")]
F = torch.nn.functional

DEVICE, WIDTH, LENGTH, BATCH = "cuda", 2048, 96, 32
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def drawn(*shape: int, dtype: Any) -> Any:
    return torch.randn(shape, device=DEVICE).to(dtype)


def same(compute: Callable[..., Any], *batched: Any) -> None:
    """Batches of 1, 2, 3, ... from other places have the bits of the whole."""
    whole = compute(*batched)
    for count in (1, 2, 3, 8, 17):
        for begin in (0, 5, len(whole) - count):
            part = slice(begin, begin + count)
            assert torch.equal(compute(*(t[part] for t in batched)), whole[part])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, LENGTH])
def test_layers(dtype: Any, length: int) -> None:
    x, w = drawn(BATCH, length, WIDTH, dtype=dtype), drawn(3 * WIDTH, WIDTH, dtype=dtype)
    bias, gain = drawn(3 * WIDTH, dtype=dtype), drawn(WIDTH, dtype=dtype)
    with torch.inference_mode(), bt.batch_invariant():
        for compute in (
            lambda x: F.linear(x, w),
            lambda x: F.linear(x, w, bias),
            lambda x: F.linear(x.transpose(0, 1).contiguous().transpose(0, 1), w, bias),
            lambda x: torch.bmm(x, w.t().expand(len(x), WIDTH, 3 * WIDTH)),
            lambda x: F.rms_norm(x, (WIDTH,), gain),
            lambda x: F.layer_norm(x, (WIDTH,), gain, gain),
            lambda x: x.softmax(-1),
            lambda x: x.log_softmax(1),
            lambda x: x.mean(1),
            lambda x: x.float().var((1, 2)),
        ):
            same(compute, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(1, 100), (1, 3000), (200, 200), (700, 1100)])
@pytest.mark.parametrize("each", [64, 128, 100])
def test_attention(dtype: Any, queries: int, keys: int, each: int) -> None:
    """Of views of a projection, as models have them, and at odd places in memory."""
    q = drawn(20, queries, 8, each, dtype=dtype).transpose(1, 2)
    k, v = (drawn(20, keys, 2, each, dtype=dtype).transpose(1, 2) for _ in "kv")
    odd = drawn(20, 2, keys, each + 1, dtype=dtype)[..., 1:]
    with torch.inference_mode(), bt.batch_invariant():
        for values in (v, odd):
            for causal in (False, True):
                attend = lambda *t, c=causal: F.scaled_dot_product_attention(*t, is_causal=c, enable_gqa=True)  # noqa: E731
                same(attend, q, k, values)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_word_of_many(dtype: Any) -> None:
    """Logits of a large vocabulary."""
    x = drawn(BATCH, 128_256, dtype=dtype)
    with torch.inference_mode(), bt.batch_invariant():
        same(lambda x: x.log_softmax(-1), x)
        same(lambda x: x.softmax(-1, dtype=torch.float32), x)
