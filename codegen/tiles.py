"""Which tiles an op of the row family is generated with: a table of numbers and what prunes it."""

from __future__ import annotations

from baracuda.runtime import Tile
from baracuda.runtime.sku import VECTOR_BYTES

REGISTERS_PER_BLOCK = 65536
OVERHEAD = (
    40  # registers a thread needs beside its slices: addresses, loop counters, the values of one element
)

# Narrowest first; a problem takes the first whose tile holds a row, and a wide one when none does. A tile's columns
# are lanes * chunks packs of 16 bytes. `blocks` is a fixed number, so that the order of every sum is the same on
# every GPU.
ROW_TILES = (
    Tile(lanes=32, rows=4, chunks=2, wide=False, blocks=528),
    Tile(lanes=128, rows=1, chunks=4, wide=False, blocks=528),
    Tile(lanes=512, rows=1, chunks=4, wide=False, blocks=264),
)
WIDE_TILE = Tile(lanes=512, rows=1, chunks=2, wide=True, blocks=64)


def tiles(bytes_per_element: int, bytes_per_acc: int, slices: int, column_sums: int) -> tuple[Tile, ...]:
    """The tiles whose `slices` (16-byte packs held per chunk) and column sums fit in registers, and the wide one."""
    lanes_per_pack = VECTOR_BYTES // bytes_per_element
    per_chunk = 4 * slices + column_sums * lanes_per_pack * bytes_per_acc // 4
    fit = []
    for tile in ROW_TILES:
        limit = min(255, REGISTERS_PER_BLOCK // tile.threads)
        chunks = min(tile.chunks, (limit - OVERHEAD) // per_chunk)
        if chunks > 0:
            fit.append(Tile(tile.lanes, tile.rows, chunks, False, tile.blocks))
    return (*fit, WIDE_TILE)
