"""Which tiles an op of the row family is generated with: a table of numbers and what prunes it."""

from __future__ import annotations

from baracuda.runtime import Tile
from baracuda.runtime.sku import VECTOR_BYTES

REGISTERS_PER_BLOCK = 65536
REGISTERS_PER_THREAD = 255
# Registers a thread needs beside its slices and sums; 44 to 72 were seen in RMSNorm, most for 16-bit types.
OVERHEAD = 72

# Narrowest first; a problem takes the first whose tile holds a row, and the wide one when none does. A tile's columns
# are lanes * chunks packs of 16 bytes. `blocks` is a fixed number, so that the order of every sum is the same on every
# GPU. Measured with RMSNorm backward on an H200, GB/s of 4247 for a device copy in the same run:
#   bf16 32768x1024: 32x4x4 2381, 64x1x2 2188, 128x1x1 1717       (four packs a thread keep enough loads in flight)
#   bf16 32768x4096: 128x1x4 2500 at 792 blocks, 2041 at 528, 256x1x2 1869, 512x1x1 1784
#   f32  32768x4096: 256x1x4 4035 at 264 blocks, 3924 at 528, 128x1x8 3403, 512x1x4 2880
ROW_TILES = (
    Tile(lanes=32, rows=4, chunks=4, wide=False, blocks=264),
    Tile(lanes=128, rows=1, chunks=4, wide=False, blocks=792),
    Tile(lanes=256, rows=1, chunks=4, wide=False, blocks=264),
)
# bf16 4096x65536, forward and backward: 384x1x2 2583 and 1878, 256x1x4 2451 and 1674, 512x1x2 1769 and 1579.
WIDE_TILE = Tile(lanes=384, rows=1, chunks=2, wide=True, blocks=32)


def tiles(bytes_per_element: int, bytes_per_acc: int, slices: int, column_sums: int) -> tuple[Tile, ...]:
    """The tiles whose `slices` (16-byte packs held per chunk) and column sums fit in registers, and the wide one."""
    sums = column_sums * VECTOR_BYTES // bytes_per_element * bytes_per_acc // 4
    fit = []
    for tile in ROW_TILES:
        limit = min(REGISTERS_PER_THREAD, REGISTERS_PER_BLOCK // tile.threads)
        chunks = min(tile.chunks, (limit - OVERHEAD) // max(1, 4 * slices + sums))
        if chunks > 0:
            fit.append(Tile(tile.lanes, tile.rows, chunks, False, tile.blocks))
    return (*fit, WIDE_TILE)
