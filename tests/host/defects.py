"""Kernels broken on purpose: how, where it shows, and what check mode says of it first."""

from __future__ import annotations

from functools import partial

from host import families, odd_patterns
from host.breaking import UNORDERED, Defect, Edit, broken, replaced, without
from host.defects_attention import ATTENTION
from host.defects_move import MOVE
from host.defects_patterns import PATTERNS
from host.defects_reduce import REDUCE
from host.defects_window import WINDOW

GATHER = partial(families.gather, 14, 128)
NORMALIZE = partial(families.normalize, 7, 200)
SPLIT_K = partial(families.split_k, 20, 20, 50, 3)
COLUMN_SUMS = partial(families.column_sums, 23, 150)
SCAN = partial(families.scan, 1700)
PLAIN = partial(families.attention, 1, 70, 90, 40)
CAUSAL = partial(families.attention, 1, 70, 90, 64, True)
CONVOLVE = partial(families.convolve, 2, 37, 36)
POOL = partial(families.max_pool, 2, 61, 45)

# Caught by the numbers alone: every access is allowed, every output written.
ARITHMETIC: dict[str, Defect] = {
    "causal mask one short": broken(CAUSAL, r"wrong result: o\[", replaced("row + 1 + args.keys", "row + args.keys")),
    "values not transposed": broken(PLAIN, r"wrong result: o\[", replaced("ldmatrix_x4_trans(", "ldmatrix_x4(")),
    "maximum of the wrong lanes": broken(
        PLAIN, r"wrong result: o\[", replaced("__shfl_xor_sync(ALL, high, 2)", "__shfl_xor_sync(ALL, high, 4)")
    ),
    "sum not scaled with the maximum": broken(PLAIN, r"wrong result: o\[", replaced("total[h] *= keep;", "")),
    "sum of half of the lanes": broken(PLAIN, r"wrong result: o\[", without("the sum of the row")),
    "logarithm to the wrong base": broken(
        PLAIN, r"wrong result: lse\[", replaced(") * 0.6931471805599453f;", ") * 1.4426950408889634f;")
    ),
    "butterfly without its first step": broken(
        NORMALIZE, r"wrong result: y\[", replaced("int step = 16; step > 0", "int step = 8; step > 0")
    ),
    "deviation from the wrong mean": broken(
        NORMALIZE, r"wrong result: y\[", replaced("block_sum(sum) / args.cols;", "block_sum(sum) / (args.cols + 1);")
    ),
    "depth left out": broken(SPLIT_K, r"wrong result: c\[", replaced("p < 16; p++", "p < 15; p++")),
    "semaphore not set back": broken(
        SPLIT_K,
        r"wrong result: turn\[0\] is 3, must be 0",
        replaced("split + 1 < args.splits ? split + 1 : 0u", "split + 1"),
    ),
    "prefix of the wrong tile": broken(SCAN, r"wrong result: y\[", replaced("lane <= nearest", "lane < nearest")),
    "taps in the wrong order": broken(
        CONVOLVE, r"wrong result: y\[", replaced("* rows[r + k][c]", "* rows[r + TAPS - 1 - k][c]")
    ),
    "window in the wrong place": broken(
        POOL, r"wrong result: y\[", replaced("first * STRIDE - BEFORE;", "first * STRIDE;")
    ),
    "second row instead of the first": broken(
        GATHER, r"wrong result: y\[", replaced("args.index[row] * args.cols", "args.index[row ^ 1] * args.cols")
    ),
}

# Right numbers in the order that ran: an atomic has found what another block wrote, and no fence follows it.
UNFENCED: dict[str, Defect] = {
    "adds without having looked": broken(
        SPLIT_K,
        rf"race \(read after write\) on 'c' byte \d+ {UNORDERED} <adds its share>",
        without("sees the sum so far"),
    ),
    "adds up without having looked": broken(
        COLUMN_SUMS,
        rf"race \(read after write\) on 'part' byte \d+ {UNORDERED} <adds up>",
        without("sees the sums of all blocks"),
    ),
    "mail without a fence after the flag": broken(
        odd_patterns.relay,
        rf"race \(read after write\) on 'mail' byte \d+ {UNORDERED} <reads>",
        Edit(r"(while \(args\.flag.*)\n    __threadfence\(\);", r"\1"),
        Edit(r"(const int came = .*)", r"\1  // reads"),
    ),
}

FAMILIES = {
    **{"move": MOVE, "reduce": REDUCE, "attention": ATTENTION, "window": WINDOW, "patterns": PATTERNS},
    **{"unfenced": UNFENCED, "arithmetic": ARITHMETIC},
}
DEFECTS = {f"{family}: {name}": defect for family, defects in FAMILIES.items() for name, defect in defects.items()}
