"""The tiles of an op of the row family: some for rows of every length, whatever the op reads."""

from __future__ import annotations

from itertools import product

import pytest

from baracuda.codegen.families.row.tiles import PREFETCH_BYTES, REGISTERS, ChunkUse, tiles
from baracuda.runtime import ElementKind
from baracuda.runtime.plans.sku import VECTOR_BYTES

WARP = 32


@pytest.mark.parametrize("element", ["f64", "f32", "bf16"])
@pytest.mark.parametrize("column_sums", [0, 1, 3])
def test_rows_of_any_length_have_a_tile_last(element: str, column_sums: int) -> None:
    """One wide tile, whose threads hold a pack of each array, however many there are and whatever is done with them."""
    some = product(range(1, 21), (0, 1, 6), (0, 1, 2), (1, 2), (False, True))
    for elements, columns, exchanges, looks, below in some:
        use = ChunkUse(elements, columns, column_sums, VECTOR_BYTES * elements, exchanges, looks, below, work=4)
        *others, wide = tiles(ElementKind(element).row, use)
        assert wide.wide and not any(tile.wide for tile in others), use
        assert wide.threads * wide.resident * 4 * elements <= REGISTERS, use
        assert not wide.blocks or wide.threads * use.prefetched <= PREFETCH_BYTES[0], use
        assert not below or WARP % (wide.lanes // WARP) == 0, use
        assert (wide.blocks > 0) == (column_sums > 0) and not wide.arch, use
