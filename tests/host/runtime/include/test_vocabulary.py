"""What the device vocabulary computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from baracuda.runtime.errors import KernelInternal

LANES = np.arange(32, dtype=np.uint32)


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_block_sum_is_right_in_every_thread_order(any_device, source, run, order):
    """A kernel with the barriers it needs gives the same bits in every order and with every worker count."""
    x, y = any_device.empty((7, 1000), np.float32), any_device.empty(7, np.float32)
    x[...] = np.random.default_rng(0).integers(-8, 9, x.shape)
    any_device.order, any_device.seed, any_device.workers = order, 3, 2
    run(any_device, source("block_sum.cu", "block_sum", "SUMMING_THREAD=0"), 7, 128, x, y, 1000)
    np.testing.assert_array_equal(y, x.sum(axis=1))


def test_missing_barrier_shows_in_some_order(device, source, run):
    """Without its barrier a sum reads poison if the summing thread runs first, and none if it runs last."""
    x, y = device.empty((1, 256), np.float32), device.empty(1, np.float32)
    x[...] = 1
    results = {}
    for order in ("forward", "reverse"):
        device.order = order
        early = source("block_sum.cu", "block_sum", "SUMMING_THREAD=0", "WITHOUT_BARRIER=1")
        run(device, early, 1, 128, x, y, 256)
        results[order] = float(y[0])
    assert np.isnan(results["forward"])
    assert results["reverse"] == 256


def test_random_order_follows_the_seed(device, source, run):
    """The same seed gives the same order, so the same wrong answer."""
    x, y = device.empty((64, 256), np.float32), device.empty(64, np.float32)
    x[...] = 1
    device.order = "random"

    def outcome(seed: int) -> bytes:
        device.seed = seed
        kernel = source("block_sum.cu", "block_sum", "SUMMING_THREAD=0", "WITHOUT_BARRIER=1")
        run(device, kernel, 64, 128, x, y, 256)
        return np.isnan(y).tobytes()

    assert outcome(1) == outcome(1)
    assert len({outcome(seed) for seed in range(8)}) > 1


def test_warp_operations(any_device, source, run):
    """Shuffles, votes, matches and reductions give what CUDA defines, segments and partial masks included."""
    out = any_device.empty((13, 32), np.uint32)
    run(any_device, source("vocabulary.cu", "warp_operations"), 1, 32, out, 0)
    expected = np.zeros((13, 32), np.uint32)
    expected[0] = LANES // 8 * 8 + 3
    expected[1] = np.where(LANES % 16 < 2, LANES, LANES - 2)
    expected[2] = np.where(LANES % 16 > 13, LANES, LANES + 2)
    expected[3] = LANES ^ 5
    expected[4] = sum(1 << lane for lane in range(32) if lane % 3 == 0)
    expected[5] = 1 + 2
    expected[6] = [sum(1 << other for other in range(32) if other % 5 == lane % 5) for lane in range(32)]
    expected[7] = LANES.sum()
    expected[8] = np.uint32(2**32 - 9)
    expected[9] = 31
    expected[10] = np.where(LANES < 16, 0x0000FFFF, 0xFFFF0000)
    expected[11] = 11 + 100
    expected[12] = 1
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_atomics_lose_nothing(any_device, source, run, workers):
    """Updates of all threads of all blocks arrive, and a spin lock's holder gets to run."""
    out = any_device.empty(8, np.uint32)
    out[...] = 0
    any_device.workers = workers
    run(any_device, source("vocabulary.cu", "atomics"), 20, 96, out, 0)
    assert out[0] == 20 * 96
    assert out[1] == 95
    assert out.view(np.float32)[2] == 20 * 96 / 2
    assert out[3] == 20 * 96 % 7
    assert out[5] == 20 * 96
    assert out[6] == 20 * 96 * 3 % 65536 << 16


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_spinning_thread_lets_others_run(device, source, run, order):
    """A thread may wait for a later thread of its warp, and a block for the one before it, in every order."""
    out = device.empty(11, np.uint32)
    out[...] = 0
    device.order, device.timeout, device.workers = order, 10, 2
    run(device, source("vocabulary.cu", "spins"), 10, 32, out, 0)
    assert out[0] == 10


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_named_barriers_pair_producer_and_consumer(any_device, source, run, order):
    """bar.sync and bar.arrive order two warps against each other without the rest of the block."""
    out = any_device.empty((6, 32), np.uint32)
    any_device.order = order
    run(any_device, source("vocabulary.cu", "pipeline"), 1, 64, out, 6)
    np.testing.assert_array_equal(out, np.arange(6)[:, None] * 32 + LANES[::-1])


def test_shared_memory_starts_poisoned(any_device, source, run):
    """Static and dynamic shared memory hold NaN at the start of every block, not what the last block left."""
    out = any_device.empty((9, 2), np.uint32)
    out[...] = 0
    any_device.workers = 1
    run(any_device, source("vocabulary.cu", "stale_shared"), 9, 1, out, 0)
    np.testing.assert_array_equal(out, 0xFFFFFFFF)


@pytest.mark.parametrize("contraction", [False, True])
def test_products_fuse_only_where_allowed(any_device, source, run, contraction):
    """a * b + c rounds twice unless contraction is allowed; the _rn functions round each operation always."""
    x, y = any_device.empty(3, np.float32), any_device.empty(4, np.float32)
    a = np.float32(1 + 2**-12)
    x[...] = [a, a, -1]
    run(any_device, source("vocabulary.cu", "fused", contraction=contraction), 1, 1, x, y, 3)
    twice, once = np.float32(a * a) - np.float32(1), np.float32(np.float64(a) * np.float64(a) - 1)
    assert twice != once
    assert y[1] == twice
    assert y[2] == y[3] == once
    assert y[0] in ((once, twice) if contraction else (twice,))


def test_conversions_and_intrinsics(any_device, source, run):
    """Conversions saturate and send NaN to 0; subnormals survive; bit functions agree with CUDA."""
    x, y = any_device.empty(1, np.float32), any_device.empty(16, np.float32)
    run(any_device, source("vocabulary.cu", "conversions"), 1, 1, x, y, 1)
    integers = y.view(np.int32)
    assert integers[:8].tolist() == [2, -2, -3, 2**31 - 1, -(2**31), 0, 0, -1]
    assert integers[8:12].tolist() == [15, 0x77552211 & 0xFFFFFFFF, 31 + 400 + 80000, 4]
    assert y[12:15].tolist() == [2.0**-24, -2.5, 1 + 0 + 0.5 + 1]
    assert integers[15] == 2


def test_half_precision_bits(any_device, source, run):
    """Every f16 decodes as NumPy's does, and floats around and between them encode to the nearest."""
    halves = np.arange(65536, dtype=np.uint16)
    values = halves.view(np.float16).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        ties = ((values[:-1].astype(np.float64) + values[1:]) / 2).astype(np.float32)
        around = [np.nextafter(v, np.float32(sign * np.inf)) for v in (values, ties) for sign in (-1, 1)]
    floats = np.concatenate([values, ties, *around, np.float32([65519, 65520, 1e38, 1e-45])])
    x, decoded = any_device.empty(floats.size, np.float32), any_device.empty(65536, np.float32)
    encoded = any_device.empty(floats.size, np.uint16)
    x[...] = floats
    run(any_device, source("vocabulary.cu", "halves"), 1, 256, x, encoded, floats.size, decoded)
    np.testing.assert_array_equal(decoded, values)
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16)
    np.testing.assert_array_equal(encoded.view(np.float16), expected)
    signs_agree = np.signbit(encoded.view(np.float16)) == np.signbit(expected)
    assert (signs_agree | np.isnan(expected)).all()


def test_matrix_product_through_fragments(any_device, source, run):
    """cp.async, ldmatrix and mma.sync together compute a product of small integers exactly."""
    rng = np.random.default_rng(1)
    a, b = any_device.empty((16, 16), ml_dtypes.bfloat16), any_device.empty((16, 8), ml_dtypes.bfloat16)
    d = any_device.empty((16, 8), np.float32)
    a[...], b[...] = rng.integers(-9, 10, a.shape), rng.integers(-9, 10, b.shape)
    run(any_device, source("vocabulary.cu", "matrix_product"), 1, 32, a, b, d)
    np.testing.assert_array_equal(d, a.astype(np.float32) @ b.astype(np.float32))


def test_missing_wait_for_async_copies_shows(device, source, run):
    """A wait that leaves the group pending leaves the destination NaN, and the kernel's end is too early."""
    a, b = device.empty((16, 16), ml_dtypes.bfloat16), device.empty((16, 8), ml_dtypes.bfloat16)
    d = device.empty((16, 8), np.float32)
    a[...], b[...], d[...] = 1, 1, 0
    with pytest.raises(KernelInternal, match=r"the thread exits while cp\.async is in flight"):
        run(device, source("vocabulary.cu", "matrix_product", "PENDING=1"), 1, 32, a, b, d)
    assert np.isnan(d).any()
