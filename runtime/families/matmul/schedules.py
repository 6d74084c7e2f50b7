"""The tiles of matrix products, and a model of how long each takes, which puts them in order.

All of an architecture and of factors' types give the same bits: a sum adds its terms in the order of the depth, 32
bytes to an instruction.
"""

from __future__ import annotations

from typing import NamedTuple

from ...plans.schedule import Schedule
from ...plans.sku import SPLIT

# Types of factors, of which both of a product are of one kind: two of bytes may differ.
FLOATS_OF_A_BYTE, WHOLE_OF_A_BYTE = ("f8e4m3", "f8e5m2"), ("i8", "u8")
BYTES = (*FLOATS_OF_A_BYTE, *WHOLE_OF_A_BYTE)
ROUNDED = "tf32"  # of f32 factors that are one TF32 number each
_STRAIGHT = ("f16", "bf16", *WHOLE_OF_A_BYTE)
_ANY = (*_STRAIGHT, *FLOATS_OF_A_BYTE)  # whose sums are made in parts, which take registers of their own
# A tile that threads can copy factors to: for blocks of a cluster they cannot.
COPYING = "t384.block_m128.block_n128.stages6.cluster1.swapped0.alternate0"
FEW_ROWS = "t256.block_m64.block_n64.stages12.cluster1.swapped1.alternate0"
FEWEST_ROWS = "t256.block_m64.block_n16.stages20.cluster1.swapped1.alternate0"
# Architecture, types of factors, and tile: its extents, the buffers of both factors, blocks of a cluster, whether the
# rows of a tile are columns of the result, and whether warpgroups alternate; of mma.sync how much of the depth a buffer
# has, and warps across the tile.
SCHEDULES = (
    ("sm_90a", ("f16", "bf16"), "t384.block_m128.block_n256.stages4.cluster2.swapped0.alternate0"),
    ("sm_90a", _STRAIGHT, "t384.block_m128.block_n192.stages4.cluster2.swapped0.alternate0"),
    ("sm_90a", _STRAIGHT, "t384.block_m128.block_n128.stages6.cluster1.swapped0.alternate1"),
    ("sm_90a", _ANY, COPYING),
    ("sm_90a", FLOATS_OF_A_BYTE, "t384.block_m128.block_n128.stages6.cluster2.swapped0.alternate0"),
    ("sm_90a", _ANY, "t384.block_m128.block_n64.stages8.cluster1.swapped0.alternate0"),
    ("sm_90a", _ANY, "t384.block_m128.block_n64.stages8.cluster1.swapped1.alternate0"),
    ("sm_90a", _ANY, FEW_ROWS),
    ("sm_90a", _ANY, "t256.block_m64.block_n32.stages16.cluster1.swapped1.alternate0"),
    ("sm_90a", _ANY, "t384.block_m128.block_n16.stages12.cluster1.swapped1.alternate0"),
    ("sm_90a", _ANY, FEWEST_ROWS),
    ("sm_80", ("f16", "bf16"), "t256.block_m128.block_n128.block_k32.stages4.across4"),
    ("sm_80", BYTES, "t256.block_m128.block_n128.block_k64.stages4.across4"),
    ("sm_80", ("f32",), "t256.block_m128.block_n64.block_k16.stages3.across2"),
    ("sm_80", (ROUNDED,), "t256.block_m128.block_n128.block_k32.stages3.across4"),
    ("sm_80", ("f64",), "t256.block_m64.block_n64.block_k16.stages3.across2"),
)
# Of products that make a factor while they run, by tables or by zero points and scales: rows of a tile, how much of the
# depth a buffer has, how many there are, and groups of warps that load, as large as the one that multiplies, whose
# warps have 16 columns each. The first that has all rows of a problem serves it.
MADE = (
    (
        "t384.tokens16.block_k256.stages6.loaders2",
        "t384.tokens32.block_k256.stages4.loaders2",
        "t384.tokens64.block_k256.stages4.loaders2",
    ),
    (
        "t384.tokens16.block_k256.stages6.loaders2",
        "t384.tokens32.block_k256.stages6.loaders2",
        "t384.tokens64.block_k256.stages4.loaders2",
    ),
)
# Of several passes: how those that are no products cut up their work, and whether products take warpgroups, or round.
OF_PASSES = (
    ("sm_90a", _ANY, "t256.packs4.blocks1056.wgmma1"),
    ("sm_80", (*_ANY, "f32", "f64"), "t256.packs4.blocks1056.wgmma0"),
    ("sm_80", (ROUNDED,), "t256.packs4.blocks1056.wgmma0.rounded1"),
)
# Of sums in parts of the depth, which another kernel adds up: the tiles of small results.
IN_PARTS = tuple(
    (arch, tags, f"{text}.{SPLIT}1")
    for arch, tags, text in SCHEDULES
    if (arch == "sm_80" and tags != BYTES) or text in (COPYING, FEW_ROWS, FEWEST_ROWS)
)
PORTABLE = {tag: text for arch, tags, text in SCHEDULES for tag in tags if arch == "sm_80"}

PART, BAND = 64, 16  # columns and rows that a kernel reduces at once
PANEL = 128  # bytes of a row of a panel: of the depth
# The sides of the tiles by which parts are counted, the most rows of narrow ones, bytes of a row that parts are of, and
# those from which on parts take less time than the whole: of bf16 16 x 1024 x 65536 70 us of an H100, 129 whole, of
# 16384 29 and 38, but of 128 x 1024 x 4096 24 and 14.
_SIDE, _FEW, _RUN, _LONG = 128, 64, 256, 32768
# An H100's: multiprocessors, cycles a second, bytes a cycle that one of them and all together load from the L2 cache,
# bytes a second of memory, and cycles of a tile beside its products. 8192 x 8192 x 8192 of bf16 take 1.56 ms in tiles
# of 128 x 256 (1.28 by the model; power limits the clock), 16 x 8192 x 8192 60 us in tiles of 64 x 16 (55).
_MULTIPROCESSORS, _CLOCK, _ONE, _ALL, _MEMORY, _TILE = 132, 1.7e9, 60, 6000, 2.6e12, 2500


def copying(schedule: Schedule) -> Schedule:
    """The tile of kernels whose threads copy factors, in place of `schedule`: its own, where they can."""
    return schedule if dict(schedule.numbers)["cluster"] == 1 else Schedule.parse(COPYING)


class Sizes(NamedTuple):
    """The extents of a product."""

    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def is_empty(self) -> bool:
        """Whether the result has no elements."""
        return 0 in (self.batch, self.rows, self.columns)


class Split(NamedTuple):
    """How many parts the depth has, and how much of it each but the last one."""

    parts: int
    terms: int

    @classmethod
    def of(cls, sizes: Sizes, itemsize: int) -> Split:
        """As many as an H100 has multiprocessors for, whatever the GPU, of whole runs of bytes of both factors."""
        run = _RUN // itemsize
        wide = _SIDE if sizes.rows > _FEW else _FEW
        tiles = sizes.batch * -(-sizes.rows // _SIDE) * -(-sizes.columns // wide)
        parts = max(1, min(_MULTIPROCESSORS // max(tiles, 1), -(-sizes.depth // run)))
        terms = max(1, -(-sizes.depth // (parts * run))) * run
        return cls(max(1, -(-sizes.depth // terms)), terms)

    def is_fast(self, sizes: Sizes, itemsize: int) -> bool:
        """Whether parts take less time than the whole, by its depth."""
        return self.parts > 1 and sizes.depth * itemsize >= _LONG

    def sizes(self, whole: Sizes) -> Sizes:
        """The extents of the products of all parts."""
        return whole._replace(batch=whole.batch * self.parts, depth=self.terms)


def takes_pairs(schedule: Schedule) -> bool:
    """Whether a tile may be of two products: of each it has half of the columns, in whole panels, or all rows if these
    are columns of the result."""
    numbers = dict(schedule.numbers)
    return "block_k" in numbers or bool(numbers["swapped"]) or numbers["block_n"] % 128 == 0


def tiles(sizes: Sizes, schedule: Schedule, *, turns: bool = False, paired: bool = False) -> int:
    """How many tiles a result has, or pairs of tiles that a cluster shares.

    `turns`: a cluster's tiles are below each other, but beside each other in the last of an odd number of rows.
    `paired`: a tile is of two products.
    """
    numbers = dict(schedule.numbers)
    rows, columns = (sizes.columns, sizes.rows) if numbers.get("swapped") else (sizes.rows, sizes.columns)
    tall, wide, cluster = numbers["block_m"], numbers["block_n"], numbers.get("cluster", 1)
    wide = wide // 2 if paired and not numbers.get("swapped") else wide
    along = -(-columns // wide)
    pairs, odd = divmod(-(-rows // tall), cluster)
    return (pairs * along + (-(-along // cluster) if turns else along) * bool(odd)) * sizes.batch


def shared_bytes(schedule: Schedule, itemsize: int, *, tma: bool) -> int:
    """Bytes of shared memory of a block."""
    numbers = dict(schedule.numbers)
    tall, wide, stages = (numbers[name] for name in ("block_m", "block_n", "stages"))
    if not tma:
        return itemsize * stages * numbers["block_k"] * (tall + wide)
    stage = tall * PANEL + -(-wide * PANEL // 1024) * 1024
    results = 2 * (schedule.threads // 128 - 1) * PANEL * (wide if numbers["swapped"] else 64)
    return 1024 + stages * (stage + 16) + results


def seconds(
    sizes: Sizes, schedule: Schedule, itemsize: int, result: int, *, turns: bool = False, paired: bool = False
) -> float:
    """About how long the kernel of sm_90a takes: waves of tiles, and what memory takes for all arrays.

    Elements of factors have `itemsize` bytes, those of the result so many; `turns` and `paired` as for `tiles`.
    """
    numbers = dict(schedule.numbers)
    tall, wide, cluster = (numbers[name] for name in ("block_m", "block_n", "cluster"))
    count = tiles(sizes, schedule, turns=turns, paired=paired)
    tall *= 2 if paired and numbers["swapped"] else 1
    at_once = min(count * cluster, _MULTIPROCESSORS)
    products = tall // 64 * (PANEL // 32) * max(wide // 2, 16)
    loaded = (tall + wide // cluster) * PANEL
    step = max(products, loaded / _ONE, loaded * at_once / _ALL)
    waves = -(-count // (_MULTIPROCESSORS // cluster))
    cycles = waves * (-(-sizes.depth * itemsize // PANEL) * step + _TILE + tall * wide / 16)
    if numbers["alternate"] or (cluster > 1 and not turns and sizes.rows <= tall):
        cycles *= 1.1  # slower by so much, but where results are dear; a cluster has a tile too many
    moved = (sizes.rows + sizes.columns * (1 + paired)) * sizes.depth * itemsize + sizes.rows * sizes.columns * result
    times = cycles / _CLOCK, sizes.batch * moved / _MEMORY
    return max(times) + min(times) / 8  # which overlap, but for what comes first and last
