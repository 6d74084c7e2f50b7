"""Which tiles an op of the row family is generated with: a table of numbers and what prunes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from baracuda.runtime import Tile
from baracuda.runtime.arrays.element import Element
from baracuda.runtime.plans.sku import VECTOR_BYTES

REGISTERS = 65536  # of a multiprocessor, for its threads
# Of shared memory, for the next row: a block of sm_89 has 99 KiB, and folds in 17 of them; one of sm_90 has 227.
PREFETCH_BYTES = (80 * 1024, 160 * 1024)

# Narrowest first; a problem takes the first whose tile holds a row, and the wide one when none does. A tile's columns
# are lanes * chunks packs of 16 bytes. Measured on an H200, in GB/s of 4245 for a copy in the same runs.
#
# A block for its rows and no more: 1024 threads on a multiprocessor, whose loads and stores overlap. RMSNorm:
#   bf16 32768x4096 3963, 16384x8192 3966; f32 32768x4096 4057
#   512 persistent threads that prefetch: 3690, 3720; 3744. 2048 threads of 2 packs: 2555, 2515
#   short rows use all of their packs: bf16 524288x256 3922 by 8x16x4, 3727 by 16x8x4; softmax 262144x512 4022 by
#   16x8x4, 3580 by 32x4x2; 348617x385 2625, 2034
# Eight packs a thread beyond 4096 halves, where registers hold them: a row that leaves a part of its tile empty has few
# bytes in flight otherwise. bf16 with four and with eight: softmax 21845x6144 3861, 4052, 13107x10240 3131, 3883,
# 8192x16384 3625, 3999; layer_norm 8192x12288 3338, 3900; fp8_quantize 4096x14336 3331, 3810; RMSNorm 13107x10240 3544,
# 4004, but 1 to 2 % less where it fills its tile (8192x16384 4042, 3990; f32 16384x8192 4177, 4079). Shorter rows gain
# little or lose (softmax 43690x3072 3992, 4103; RMSNorm 65536x2048 4091, 4011), and of those that are no whole packs,
# which take more registers, long ones lose (RMSNorm 32776x4095 3281, 2986, 16386x8191 3257, 3083).
# The longest of a block: bf16 8192x32768 4045, by a cluster of four 3751; softmax 4059, 3331; f32 8192x16384 4046,
# 3809. A row that fills a multiprocessor's registers is alone there, so the next is prefetched: 4096x65536 3870, 3702
# if it does not, by a cluster of eight 3640; softmax 3723, 3292.
STREAMING = (
    Tile(lanes=4, rows=32, chunks=2, wide=False, blocks=0, resident=8),
    Tile(lanes=4, rows=32, chunks=4, wide=False, blocks=0, resident=8),
    Tile(lanes=8, rows=16, chunks=4, wide=False, blocks=0, resident=8),
    Tile(lanes=16, rows=8, chunks=4, wide=False, blocks=0, resident=8),
    Tile(lanes=32, rows=4, chunks=4, wide=False, blocks=0, resident=8),
    Tile(lanes=64, rows=1, chunks=4, wide=False, blocks=0, resident=16),
    Tile(lanes=128, rows=1, chunks=4, wide=False, blocks=0, resident=8),
    Tile(lanes=128, rows=1, chunks=8, wide=False, blocks=0, resident=8),
    Tile(lanes=256, rows=1, chunks=8, wide=False, blocks=0, resident=4),
    Tile(lanes=512, rows=1, chunks=4, wide=False, blocks=0, resident=2),
    Tile(lanes=512, rows=1, chunks=8, wide=False, blocks=0, resident=2),
    Tile(lanes=1024, rows=1, chunks=8, wide=False, blocks=132, resident=1),
)
UP_TO_4096, UP_TO_8192 = STREAMING[:7], STREAMING[:8]  # halves
WIDE = Tile(lanes=384, rows=1, chunks=2, wide=True, blocks=0)
# Rows that are read once need not stay on the multiprocessor. On an H200, bf16, us by this tile and by one that holds a
# row: cross_entropy 8192x128256 468 and 705, 32768x32000 462 and 554, 32768x16384 245 and 263, but 65536x8192 280 and
# 250; reduce_rows 463 and 502, 459 and 458, 242 and 241.
WIDE_ONCE = Tile(lanes=128, rows=1, chunks=8, wide=True, blocks=0, resident=8)
# Shared memory and registers together hold more of a multiprocessor's rows, so more blocks are busy at other times, and
# longer rows need no cluster or a smaller one. On an H200, bf16, us by these tiles and by registers alone:
# cross_entropy_with_gradient 8192x128256 1026 and 1157 (by clusters of four in shared memory alone, which leave eight
# multiprocessors idle, 1130), 4096x262144 1095 and 1264, 16384x50304 817 and 953, 32768x32000 1013 and 1075,
# 32768x16384 527 and 544, 65536x8192 526 and 550; log_softmax 2048x131072 279 and 306. With less
# work, blocks of up to 32768 halves gain nothing: softmax 8192x32768 265 and 264.
STAGED = (
    Tile(lanes=128, rows=1, chunks=8, wide=False, blocks=0, resident=12, staged=8),
    Tile(lanes=256, rows=1, chunks=8, wide=False, blocks=0, resident=6, staged=8),
    Tile(lanes=512, rows=1, chunks=8, wide=False, blocks=0, resident=3, staged=8),
)
STAGED_IN_PART = (
    Tile(lanes=512, rows=1, chunks=16, wide=False, blocks=0, resident=2, staged=8),
    Tile(lanes=512, rows=1, chunks=16, wide=False, blocks=0, cluster=2, resident=2, staged=8),
    Tile(lanes=512, rows=1, chunks=16, wide=False, blocks=0, cluster=4, resident=2, staged=8),
)
STAGED_BYTES = 208 * 1024  # of a multiprocessor
MUCH_WORK = 8  # operations an element
# Blocks of clusters wait for each other, so they are persistent and prefetch, too: bf16 2048x131072 3690, by two of the
# blocks of 1024 threads 3495; 1024x262144 3740, by four 2540.
CLUSTERS = (
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=124, cluster=4, resident=4),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=60, cluster=8, resident=4),
    Tile(lanes=512, rows=1, chunks=4, wide=False, blocks=30, cluster=8, resident=2),
    Tile(lanes=1024, rows=1, chunks=4, wide=False, blocks=15, cluster=8, resident=1),
)
# Where they wait twice or more, four clusters on a multiprocessor are busy at other times: on an H100, bf16
# 8192x128256, 917 us by these and 1217 by those above, where elements are stored, too, 1813 and 2234.
CLUSTERS_OF_MORE_WAITS = (
    Tile(lanes=256, rows=1, chunks=8, wide=False, blocks=0, cluster=4, resident=4),
    Tile(lanes=256, rows=1, chunks=8, wide=False, blocks=0, cluster=8, resident=4),
    Tile(lanes=512, rows=1, chunks=8, wide=False, blocks=0, cluster=8, resident=2),
)
# Blocks that sum down columns: 512 threads on a multiprocessor, which keep the sums and prefetch, and 256 in a block
# at least, since each block's parts are a row of traffic. `blocks` is a fixed number, so that the order of every sum is
# the same on every GPU. RMSNorm backward:
#   bf16 1024x4096 14.4 us (22.3 with half of the threads and twice the blocks), 32768x4096 3939 GB/s (3767)
#   4 packs ahead 16384x8192 3568, 2 2982, none 2493; two rows ahead are no better than one
# Two blocks of a cluster on a multiprocessor hide a part of the wait for the others: bf16 8192x16384 3596 where one of
# 512 threads has 3326. 4096x65536 has 3697, by barriers of the whole cluster 3262. The device holds 62 clusters of 4
# and 30 of 8 such blocks; of more some wait for a whole pass (1761). Wide: 384x1x2 1878, 256x1x4 1674, 512x1x2 1579.
SUMMING = (
    Tile(lanes=4, rows=64, chunks=2, wide=False, blocks=264, resident=2),
    Tile(lanes=4, rows=64, chunks=4, wide=False, blocks=264, resident=2),
    Tile(lanes=8, rows=32, chunks=4, wide=False, blocks=264, resident=2),
    Tile(lanes=16, rows=16, chunks=4, wide=False, blocks=264, resident=2),
    Tile(lanes=32, rows=8, chunks=4, wide=False, blocks=264, resident=2),
    Tile(lanes=64, rows=4, chunks=4, wide=False, blocks=264, resident=2),
    Tile(lanes=128, rows=2, chunks=4, wide=False, blocks=264, resident=2),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=264, resident=2),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=132, cluster=2, resident=2),
    Tile(lanes=512, rows=1, chunks=4, wide=False, blocks=132, resident=1),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=62, cluster=4, resident=2),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=30, cluster=8, resident=2),
    Tile(lanes=512, rows=1, chunks=4, wide=False, blocks=14, cluster=8, resident=1),
)


@dataclass(frozen=True)
class ChunkUse:
    """A thread's registers for each chunk: packs of elements and, with column sums, packs of columns and the sums."""

    elements: int
    columns: int
    column_sums: int
    prefetched: int  # bytes in shared memory
    exchanges: int  # how often the threads of a row wait for each other
    looks: int  # how often they look at it
    below: bool  # do they sum what is below the largest?
    work: int  # operations an element

    @property
    def table(self) -> tuple[Tile, ...]:
        """The tiles to choose from for rows that they hold."""
        if self.column_sums:
            return SUMMING
        if not self.exchanges:  # cross_entropy_backward, on an H100: bf16 8192x128256 1709 us by a cluster, 1463
            return tuple(tile for tile in STREAMING if not tile.arch)
        if self.looks == 1:
            return UP_TO_8192
        if self.below:  # columns that are read beside them gain nothing: layer_norm 4096x65536 350 us staged, 288
            short = (*UP_TO_4096, *STAGED) if self.work >= MUCH_WORK else STREAMING[:-1]
            return (*short, *STAGED_IN_PART)
        return (*STREAMING, *(CLUSTERS if self.exchanges == 1 else CLUSTERS_OF_MORE_WAITS))

    @property
    def wide(self) -> tuple[Tile, ...]:
        """The tiles for longer rows, of which the first that fits is taken: one that does is needed."""
        once = (WIDE_ONCE,) if self.below or (self.exchanges and self.looks == 1) else ()
        usual = replace(WIDE, lanes=256) if self.below else WIDE  # a warp rescales a power of two of sums
        tiles = (*once, usual, replace(WIDE, lanes=128))
        return tuple(replace(tile, blocks=32) for tile in tiles) if self.column_sums else tiles


def tiles(element: Element, use: ChunkUse) -> tuple[Tile, ...]:
    """The tiles whose registers suffice, some with fewer chunks, and a wide one."""
    fitting: list[Tile] = []
    for tile in use.table:
        if tile.cluster == 2 and element.bytes > 2 and use.column_sums:
            continue  # f32 16384x8192: 4105 GB/s by one block, 4010 by two
        candidate = _fitted(tile, element, use)
        if candidate.chunks > 0 and not any(_serves(t, candidate) for t in fitting):
            fitting.append(candidate)
    wide = (_fitted(tile, element, use) for tile in use.wide)
    return (*fitting, *[tile for tile in wide if tile.chunks > 0][:1])


def _fitted(tile: Tile, element: Element, use: ChunkUse) -> Tile:
    """`tile` with as many chunks as its registers and shared memory hold, which may be none."""
    other_registers = 16 + 4 * element.acc.row.bytes  # for all but packs and sums
    packs = use.elements + (use.columns if use.column_sums else 0)
    sums = use.column_sums * VECTOR_BYTES // element.bytes * element.acc.row.bytes // 4
    registers = REGISTERS // (tile.threads * tile.resident) - other_registers
    staged = min(tile.staged, STAGED_BYTES // (tile.threads * tile.resident * max(1, use.prefetched)))
    chunks = min(tile.chunks, staged + max(0, registers // max(1, 4 * packs + sums)))
    if tile.blocks:
        chunks = min(chunks, PREFETCH_BYTES[bool(tile.arch)] // (tile.threads * max(1, use.prefetched)))
    return replace(tile, chunks=chunks, staged=min(staged, chunks))


def _serves(tile: Tile, other: Tile) -> bool:
    """Whether `tile`, which comes before `other`, takes all problems that fit in `other`."""
    return tile.columns(VECTOR_BYTES) >= other.columns(VECTOR_BYTES) and tile.arch <= other.arch
