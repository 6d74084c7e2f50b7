"""Defects of the kernels in reduce.cu."""

from __future__ import annotations

from functools import partial

from host import families
from host.breaking import NO_BARRIER, RACE, UNORDERED, Defect, Edit, broken, replaced, without

NORMALIZE = partial(families.normalize, 7, 200)
SPLIT_K = partial(families.split_k, 20, 20, 50, 3)
COLUMN_SUMS = partial(families.column_sums, 23, 150)
SCAN = partial(families.scan, 1700)

REDUCE: dict[str, Defect] = {
    "sums before all warps are done": broken(
        NORMALIZE,
        r"read of 'of_warp' byte 4, which was never written at <adds the sums of warps>",
        without("sums of warps are there"),
    ),
    "leaves sums while others read them": broken(
        NORMALIZE,
        rf"race \(write after read\) on 'of_warp' byte \d+ with thread \d+ {NO_BARRIER} <leaves the sum of a warp>",
        without("sums of warps are used"),
    ),
    "masks half of the warp": broken(
        NORMALIZE,
        r"lane 0 reads inactive lane 16 in __shfl_xor_sync at <a butterfly>",
        replaced("ALL = 0xffffffffu", "ALL = 0x0000ffffu"),
    ),
    "shuffles in half of the warp": broken(
        NORMALIZE,
        r"block \(0,0,0\): (warp 0 diverges, .*__shfl_xor_sync|deadlock, .*__shfl_xor_sync at <a butterfly>)",
        replaced("value = warp_sum(value);", "if (threadIdx.x % 32 < 16) value = warp_sum(value);"),
    ),
    "waits in one lane of each warp": broken(
        NORMALIZE,
        rf"{RACE} on 'of_warp' byte 0 with thread 0 {NO_BARRIER} <adds the sums of warps>",
        Edit(
            r"of_warp\[threadIdx\.x / 32\] = value;(  // .*)\n.*sums of warps are there",
            r"{ of_warp[threadIdx.x / 32] = value; __syncthreads(); }\1\n",
        ),
    ),
    "waits in two places": broken(
        NORMALIZE,
        r"block \(\d,0,0\): divergent barrier, thread 0 waits in __syncthreads at <warp 0> and thread 32 in "
        "__syncthreads at <other warps>",
        replaced(
            "__syncthreads();  // sums of warps are used",
            "if (threadIdx.x < 32) __syncthreads();  // warp 0\n  else __syncthreads();  // other warps",
        ),
    ),
    "has one place too few for the warps": broken(
        NORMALIZE,
        r"index 4 is outside 'float \[4\]' at <leaves the sum of a warp>",
        replaced("of_warp[threadIdx.x / 32] =", "of_warp[threadIdx.x / 32 + 1] ="),
    ),
    "goes a column too far": broken(
        NORMALIZE,
        r"read of 4 bytes out of bounds, 0 bytes past the end of 'scale' .* at <writes the row>",
        Edit(r"c < args\.cols; c \+= 128\)\n(.*// writes the row)", r"c <= args.cols; c += 128)\n\1"),
    ),
    "does not wait for its turn": broken(
        SPLIT_K,
        r"read of 'c' byte \d+, which was never written at <adds its share>",
        replaced("while (atomicAdd(&args.turn[tile], 0u) != split) __nanosleep(50);", ";"),
    ),
    "lets one thread wait for all": broken(
        SPLIT_K,
        r"read of 'c' byte \d+, which was never written at <adds its share>",
        without("it is this block's turn"),
    ),
    "passes its turn without a fence": broken(
        SPLIT_K, rf"race \(read after write\) on 'c' byte \d+ {UNORDERED} <adds its share>", without("shows the sum")
    ),
    "passes its turn too early": broken(
        SPLIT_K,
        rf"race \(read after write\) on 'c' byte \d+ {UNORDERED} <adds its share>",
        without("the sum is written"),
    ),
    "adds to what nobody wrote": broken(
        SPLIT_K,
        r"read of 'c' byte \d+, which was never written at <adds its share>",
        replaced("*c = split ? *c + sum : sum;", "*c = *c + sum;"),
    ),
    "waits for a turn that never comes": broken(
        SPLIT_K,
        r"launch timeout",
        replaced("!= split) __nanosleep", "!= split + 1) __nanosleep"),
    ),
    "multiplies tiles that are not there": broken(
        SPLIT_K,
        r"read of '[ab]' byte \d+, which was never written at <multiplies the tiles>",
        without("tiles are full"),
    ),
    "overwrites tiles that are read": broken(
        SPLIT_K,
        rf"{RACE} on 'a' byte \d+ with thread \d+ {NO_BARRIER} <multiplies the tiles>",
        without("tiles are used"),
    ),
    "reads beyond the depth": broken(
        SPLIT_K,
        r"read of 4 bytes out of bounds, \d+ bytes past the end of 'b' .* at <a tile of b>",
        replaced("k + i < args.depth && col < args.cols", "col < args.cols"),
    ),
    "leaves sums beyond the workspace": broken(
        COLUMN_SUMS,
        r"write of 4 bytes out of bounds, 0 bytes past the end of 'part' .* at <leaves the sums of a block>",
        replaced("args.part[blockIdx.x * args.cols + c]", "args.part[(blockIdx.x + 1) * args.cols + c]"),
    ),
    "draws a ticket without a fence": broken(
        COLUMN_SUMS,
        rf"race \(read after write\) on 'part' byte \d+ {UNORDERED} <adds up>",
        without("shows the sums of a block"),
    ),
    "draws a ticket too early": broken(
        COLUMN_SUMS,
        rf"race \(read after write\) on 'part' byte \d+ {UNORDERED} <adds up>",
        without("sums of the block are written"),
    ),
    "goes on before the ticket is known": broken(
        COLUMN_SUMS,
        r"read of 'last' byte 0, which was never written at <decides>",
        without("the ticket is known"),
        replaced("if (!last) return;", "if (!last) return;  // decides"),
    ),
    "lets the last but one add up": broken(
        COLUMN_SUMS,
        r"read of 'part' byte \d+, which was never written at <adds up>",
        replaced("+ 1 == gridDim.x", "+ 2 == gridDim.x"),
    ),
    "draws a ticket without an atomic": broken(
        COLUMN_SUMS,
        rf"race \(read after write\) on 'ticket' byte 0 {UNORDERED} <draws a ticket>",
        replaced("atomicAdd(args.ticket, 1u) + 1", "++*args.ticket"),
    ),
    "publishes its sum without an atomic": broken(
        SCAN,
        rf"race \(.*\) on 'state' byte \d+ {UNORDERED} <looks at a tile>",
        Edit(r"atomicExch\(&state\[tile\], (.*)\);(  // publishes its sum)", r"state[tile] = \1;\2"),
        Edit(r"atomicExch\(&state\[tile\], (.*)\);(  // publishes its prefix)", r"state[tile] = \1;\2"),
    ),
    "looks before the first tile": broken(
        SCAN,
        r"atomic update of 8 bytes out of bounds, 8 bytes before 'state' .* at <looks at a tile>",
        replaced("if (last - lane >= 0)", "if (last - lane >= -1)"),
    ),
    "votes only where there is a tile": broken(
        SCAN,
        r"block \(\d,0,0\): warp 0 diverges, .*lane \d+ is in __ballot_sync with mask ffffffff at "
        "<tiles with a prefix>",
        replaced("const unsigned complete = __ballot", "const unsigned complete = last < lane ? 0 : __ballot"),
    ),
    "uses a prefix that is not there": broken(
        SCAN,
        r"read of 'before' byte 0, which was never written at <uses the prefix>",
        without("the prefix is there"),
        replaced("int base = before + inclusive - own;", "int base = before + inclusive - own;  // uses the prefix"),
    ),
    "takes a tile that is not known": broken(
        SCAN,
        rf"race \(read after write\) on 'tile' byte 0 with thread 0 {NO_BARRIER} <uses the tile>",
        without("the tile is known"),
        Edit(r"(const long long first = \(tile .*;)", r"\1  // uses the tile"),
    ),
}
