"""Which tiles an op of the row family is generated with: a table of numbers and what prunes it."""

from __future__ import annotations

from dataclasses import replace

from baracuda.runtime import Tile
from baracuda.runtime.element import Element
from baracuda.runtime.sku import RESIDENT_THREADS, VECTOR_BYTES

# Of a thread, where RESIDENT_THREADS of them share a multiprocessor; and what one needs beside its slices and sums.
REGISTERS, OVERHEAD = 65536 // RESIDENT_THREADS, 40
# Of a block that sums down columns, at least: each block's parts are a row of traffic. On an H200, RMSNorm backward in
# bf16: 1024x4096 14.4 us (22.3 with half of the threads and twice the blocks), 32768x4096 3939 GB/s (3767). With 512,
# rows that are not packed lack registers.
SUMMING_THREADS = 256
AHEAD_BYTES = 80 * 1024  # of shared memory for the next row: a block of sm_89 has 99 KiB, and folds in 17 of them

# Narrowest first; a problem takes the first whose tile holds a row, and the wide one when none does. A tile's columns
# are lanes * chunks packs of 16 bytes. `blocks` is a fixed number, so that the order of every sum is the same on every
# GPU. While a row is worked on the next one is on its way: what a multiprocessor has under way decides, and 4 packs a
# thread of 512 are enough. On an H200, RMSNorm in GB/s of 4222 for a copy in the same run, fw and bw, by packs:
#   bf16 32768x4096: 4 3720 and 3662, 2 3364 and 3292; without reading ahead 3599 and 3102
#   bf16 16384x8192: 4 3750 and 3568, 2 3314 and 2982; without 2973 and 2493
#   f32  16384x8192: 4 3924 and 4018
# Two rows ahead instead of one changed nothing; 768 or 1024 threads a multiprocessor made the forward slower.
# Clusters: two blocks on a multiprocessor hide a part of the wait for the others, bf16 4096x65536 2877 and 3271 where
# one of 512 threads has 2787 and 3107. The device holds 62 clusters of 4 and 30 of 8 such blocks; of more than it holds
# at once some wait for a whole pass (1865 and 1761). bf16 8192x16384 has 3269 and 3351 in clusters of 2, else 3813 and
# 3310.
ROW_TILES = (
    Tile(lanes=8, rows=16, chunks=2, wide=False, blocks=528),
    Tile(lanes=16, rows=8, chunks=4, wide=False, blocks=528),
    Tile(lanes=32, rows=4, chunks=4, wide=False, blocks=528),
    Tile(lanes=64, rows=1, chunks=4, wide=False, blocks=1056),
    Tile(lanes=128, rows=1, chunks=4, wide=False, blocks=528),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=264),
    Tile(lanes=512, rows=1, chunks=4, wide=False, blocks=132),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=60, cluster=4),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=28, cluster=8),
    Tile(lanes=512, rows=1, chunks=4, wide=False, blocks=14, cluster=8),
)
# bf16 4096x65536, forward and backward: 384x1x2 2583 and 1878, 256x1x4 2451 and 1674, 512x1x2 1769 and 1579.
WIDE_TILE = Tile(lanes=384, rows=1, chunks=2, wide=True, blocks=32)


def tiles(element: Element, slices: int, column_sums: int, ahead: int) -> tuple[Tile, ...]:
    """The tiles whose `slices` (16-byte packs held per chunk) and column sums fit in registers, and the wide one.

    `ahead` is how many bytes a thread reads ahead for each chunk.
    """
    sums = column_sums * VECTOR_BYTES // element.bytes * element.acc.row.bytes // 4
    fit = []
    for tile in ROW_TILES:
        chunks = min(tile.chunks, (REGISTERS - OVERHEAD) // max(1, 4 * slices + sums))
        if column_sums and tile.threads < SUMMING_THREADS:
            tile = replace(tile, rows=SUMMING_THREADS // tile.lanes, blocks=264)
        chunks = min(chunks, AHEAD_BYTES // (tile.threads * max(1, ahead)))
        if chunks > 0:
            fit.append(replace(tile, chunks=chunks))
    return (*fit, WIDE_TILE)
