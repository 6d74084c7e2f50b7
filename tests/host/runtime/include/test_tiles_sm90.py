"""TMA for tiles of matrices on the host device: multicast, stores through tensor maps, sums of every number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from host.tensor_maps import F32, encode

from baracuda.runtime.errors import KernelInternal

BOTH_TEXTS = True

FILE = "tiles_sm90.cu"
TURNS, ROWS, COLUMNS = 5, 6, 32  # a box has two rows more
MODES = [("late", "forward"), ("early", "reverse"), ("random", "random")]


class Tiles:
    """Matrices in and out, with their tensor maps."""

    def __init__(self, device: Any, cluster: int, kept: int) -> None:
        self.into, self.out = (device.empty((n, ROWS, COLUMNS), np.float32) for n in (TURNS, TURNS * kept))
        self.into[...] = np.arange(self.into.size).reshape(self.into.shape)
        self.out[...] = 0
        maps = [encode(device, F32, array, (1, 8, COLUMNS)) for array in (self.into, self.out)]
        assert [code for code, _ in maps] == [0, 0]
        self.words = [words for _, words in maps]
        self.device, self.cluster = device, cluster

    def run(self, run: Any, source: Any, defect: int = 0) -> None:
        kernel = source(FILE, "pass_around", f"BARACUDA_CLUSTER={self.cluster}", "DYN_SHARED_BYTES=4096")
        run(self.device, kernel, self.cluster, 64, *self.words, TURNS, defect)


@pytest.mark.parametrize("cluster", [2, 4])
@pytest.mark.parametrize(("asynchrony", "order"), MODES)
def test_tiles_of_a_cluster(device, source, run, cluster, asynchrony, order):
    """One load serves all blocks, each stores its own tile; nothing is stored beyond the edges."""
    device.asynchrony, device.order, device.seed = asynchrony, order, 3
    tiles = Tiles(device, cluster, cluster)
    tiles.run(run, source)
    wanted = tiles.into[:, None] + np.arange(cluster, dtype=np.float32)[None, :, None, None]
    np.testing.assert_array_equal(tiles.out, wanted.reshape(tiles.out.shape))
    device.check_canaries(tiles.out)


@pytest.mark.parametrize(("asynchrony", "order"), MODES)
def test_tiles_that_add_up(device, source, run, asynchrony, order):
    """Two blocks add to the same tile, in either order."""
    device.asynchrony, device.order, device.seed = asynchrony, order, 3
    tiles = Tiles(device, 2, 1)
    tiles.run(run, source, defect=5)
    np.testing.assert_array_equal(tiles.out, 2 * tiles.into + 1)


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        (1, r"race \(write after write\) on 'dynamic shared memory' byte 1024 with thread 0 of block 1 of the cluster"),
        (2, "deadlock, .* in mbarrier.try_wait .* which lacks 0 of 1 arrivals and 1024 of 1024 bytes"),
        (3, "the block ends while cp.async.bulk.tensor of 1024 bytes to byte 1024 of dynamic shared memory of block 1"),
        (4, "by the copy engine or a matrix unit; needs fence.proxy.async between store and barrier"),
    ],
)
def test_defects_of_multicast(device, source, run, defect, said):
    """A tile that is loaded too early, to too few, to a block that leaves, or stored before it is seen."""
    device.check = True
    tiles = Tiles(device, 2, 2)
    with pytest.raises(KernelInternal, match=said):
        tiles.run(run, source, defect)


def test_watched_tiles_are_silent(device, source, run):
    device.check = True
    tiles = Tiles(device, 2, 2)
    tiles.run(run, source)


INTEGERS: list[Callable[..., Any]] = [np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor]
COMBINATIONS = [
    *[(operation, np.uint32) for operation in INTEGERS],
    *[(operation, np.int32) for operation in INTEGERS[:3]],
    (np.add, np.uint64),
    *[(operation, np.float16) for operation in INTEGERS[:3]],
    *[(operation, ml_dtypes.bfloat16) for operation in INTEGERS[:3]],
    (np.add, np.float32),
    (np.add, np.float64),
]


@pytest.mark.parametrize("which", range(len(COMBINATIONS)), ids=lambda i: f"{COMBINATIONS[i][0].__name__}-{i}")
def test_combinations(device, source, run, which):
    """Every operation of the table, on every kind of number, with sums that round, wrap around and tie."""
    operation, kind = COMBINATIONS[which]
    rng, count = np.random.default_rng(which), 256 // np.dtype(kind).itemsize
    a, b = device.empty(count, kind), device.empty(count, kind)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        a[...], b[...] = (rng.integers(limits.min, limits.max, count, dtype=kind, endpoint=True) for _ in range(2))
    else:
        a[...], b[...] = (rng.standard_normal(count) * 2.0 ** rng.integers(-14, 14, count) for _ in range(2))
    wide = np.float64 if kind in (np.float16, ml_dtypes.bfloat16) else kind
    with np.errstate(over="ignore"):
        wanted = operation(a.astype(wide), b.astype(wide))
    run(device, source(FILE, "combine", "DYN_SHARED_BYTES=4096"), 1, 16, b, a, which)
    assert a.tobytes() == np.asarray(wanted, kind).tobytes()
