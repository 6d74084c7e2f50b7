"""Defects of the kernels in move.cu."""

from __future__ import annotations

from functools import partial

from host import families
from host.breaking import NO_BARRIER, RACE, UNORDERED, Defect, Edit, broken, replaced, without

TRANSPOSE = partial(families.transpose, 33, 70, grid=2)
TRANSPOSE_ONCE = partial(families.transpose, 20, 40, grid=2)
TRANSPOSE_LAST = partial(families.transpose, 31, 33, grid=2)
TRANSPOSE_BY_WARP = partial(families.transpose, 33, 300, grid=1, by_warp=True)
WIDEN = partial(families.widen, 1004)
GATHER = partial(families.gather, 14, 128)
SCATTER = partial(families.scatter_add, 50, 33)

MOVE: dict[str, Defect] = {
    "reads a tile before it is full": broken(
        TRANSPOSE,
        r"read of 'tile' byte \d+, which was never written at <empties the tile>",
        without("the tile is full"),
    ),
    "fills a tile that is still read": broken(
        TRANSPOSE,
        rf"{RACE} on 'tile' byte \d+ with thread \d+ {NO_BARRIER} (<fills the tile>|<empties the tile>)",
        without("the tile is empty"),
    ),
    "reads beyond a tile": broken(
        TRANSPOSE,
        r"index 32 is outside 'float \[32\]\[33\]' at <empties the tile>",
        replaced("tile[lane][r];", "tile[lane + 1][r];"),
    ),
    "stores to a tile as to global memory": broken(
        TRANSPOSE,
        r"__stwb to byte \d+ of 'tile' of 4224 bytes in shared memory: needs global memory at <fills the tile>",
        Edit(r"(tile\[r\]\[lane\]) = (args\.x.*);(  // fills the tile)", r"__stwb(&\1, \2);\3"),
    ),
    "stores packs to a tile": broken(
        TRANSPOSE,
        r"__stwb to byte \d+ of 'tile' .* in shared memory: needs global memory at pack\.cuh:\d+ <- <fills the tile>",
        Edit(r"(tile\[r\]\[lane\]) = (args\.x.*);(  // fills the tile)", r"Pack<float, 1>{\2}.store(&\1);\3"),
    ),
    "loads from a tile as from global memory": broken(
        TRANSPOSE_BY_WARP,
        r"__ldcs from byte \d+ of 'tiles' .* in shared memory: needs global memory at <empties the warp's tile>",
        replaced("= tiles[warp][lane][r];", "= __ldcs(&tiles[warp][lane][r]);"),
    ),
    "loads from its own variable as from global memory": broken(
        TRANSPOSE,
        r"__ldg from local memory: needs global memory at <fills the tile>",
        Edit(r"= (args\.x.*);(  // fills the tile)", r"= [](float own) { return __ldg(&own); }(\1);\2"),
    ),
    "reads rows beyond the last": broken(
        TRANSPOSE,
        r"read of 4 bytes out of bounds, \d+ bytes past the end of 'x' of 9240 bytes at <fills the tile>",
        replaced("row0 + r < args.rows && col0 + lane < args.cols", "col0 + lane < args.cols", 2),
    ),
    "writes with the pitch of the input": broken(
        TRANSPOSE_LAST,
        r"write of 4 bytes out of bounds, \d+ bytes past the end of 'y' of 4092 bytes at <empties the tile>",
        replaced("args.y[(col0 + r) * args.rows + row0", "args.y[(col0 + r) * args.cols + row0", 2),
    ),
    "leaves tiles out": broken(
        TRANSPOSE, r"\d+ of 2310 elements of 'y' never written", replaced("t += gridDim.x)", "t += 2 * gridDim.x)")
    ),
    "takes a row of the tile for missing": broken(
        TRANSPOSE_ONCE,
        r"read of 'tile' byte \d+, which was never written at <empties the tile>",
        replaced("row0 + r < args.rows &&", "row0 + r < args.rows - 1 &&", 2),
    ),
    "reads a warp's tile before it is full": broken(
        TRANSPOSE_BY_WARP,
        r"read of 'tiles' byte \d+, which was never written at <empties the warp's tile>",
        without("the warp's tile is full"),
    ),
    "fills a warp's tile that is still read": broken(
        TRANSPOSE_BY_WARP,
        rf"{RACE} on 'tiles' byte \d+ with thread \d+ {NO_BARRIER} <empties the warp's tile>",
        without("the warp's tile is empty"),
    ),
    "gives all warps the same tile": broken(
        TRANSPOSE_BY_WARP,
        rf"race \(write after (read|write)\) on 'tiles' byte \d+ with thread \d+ {NO_BARRIER} <fills the warp's tile>",
        replaced("tiles[warp]", "tiles[warp * 0]", 2),
    ),
    "waits for half of its warp": broken(
        TRANSPOSE_BY_WARP,
        r"read of 'tiles' byte 64, which was never written at <empties the warp's tile>",
        replaced("__syncwarp();  // the warp's tile is full", "__syncwarp(0xffffu);  // the warp's tile is full"),
    ),
    "reads packs from odd addresses": broken(
        WIDEN,
        r"misaligned access to a pack, byte 18 of 'x' of 2008 bytes: "
        r"needs a multiple of 16, is 2 beyond one at pack\.cuh:\d+",
        replaced("in.load(args.x + i);", "in.load(args.x + i + (i > 0));"),
    ),
    "reads a whole pack at the tail": broken(
        WIDEN,
        r"read of 16 bytes out of bounds, 0 bytes past the end of 'x' .* at pack\.cuh:\d+ <- <reads a pack>",
        replaced("if (i + 8 <= args.n)", "if (i < args.n)"),
    ),
    "forgets half of each pack": broken(
        WIDEN, r"500 of 1004 elements of 'y' never written, the first is element 4", without("writes the second half")
    ),
    "writes to its input": broken(
        WIDEN,
        r"write to the input 'x' byte \d+ at <copies the tail>",
        replaced("args.y[k] = float(args.x[k]);", "const_cast<bf16*>(args.x)[k] = args.x[i];"),
    ),
    "gathers rows beyond the last": broken(
        GATHER,
        r"read of 4 bytes out of bounds, 0 bytes past the end of 'index' .* at <finds the row>",
        replaced("if (row >= args.rows) return;", ""),
    ),
    "gives the rows of one block to all": broken(
        GATHER,
        rf"race \(write after write\) on 'y' byte \d+ {UNORDERED} pack\.cuh:\d+ <- <writes the row>",
        replaced("(blockIdx.x * 128ll + threadIdx.x) / 32;\n  if", "threadIdx.x / 32;\n  if"),
        replaced(
            "pack.store(args.y + row * args.cols + c);", "pack.store(args.y + row * args.cols + c);  // writes the row"
        ),
    ),
    "has no table": broken(
        GATHER,
        r"read of 16 bytes out of bounds, at address \(nil\) at pack\.cuh:\d+ <- <reads the row>",
        replaced("args.table + args.index[row] * args.cols;", "args.index[row] ? args.table : nullptr;"),
    ),
    "takes the next row of the table": broken(
        GATHER,
        r"read of 16 bytes out of bounds, \d+ bytes past the end of 'table' .* at pack\.cuh:\d+ <- <reads the row>",
        replaced("args.index[row] * args.cols", "(args.index[row] + 1) * args.cols"),
    ),
    "follows a pointer that is a number": broken(
        GATHER,
        r"read of 16 bytes out of bounds, at address 0x[0-9a-f]+ at pack\.cuh:\d+ <- <reads the row>",
        replaced("args.table + args.index", "(const float*)(args.cols << 20) + args.index"),
    ),
    "adds without an atomic": broken(
        SCATTER,
        rf"race \((read|write) after write\) on 'sums' byte \d+ with (thread \d+ {NO_BARRIER}|block \d.* at)"
        " <adds an element>",
        Edit(r"atomicAdd\(&(args\.sums\[.*?\]), (.*)\);(  // adds an element)", r"\1 += \2;\3"),
    ),
    "counts without an atomic": broken(
        SCATTER,
        rf"race \((read|write) after write\) on 'seen' byte \d+ with thread \d+ {NO_BARRIER} <counts a row>",
        replaced("atomicAdd(&seen[bin], 1u);", "seen[bin]++;"),
    ),
    "counts on from nothing": broken(
        SCATTER,
        r"atomic update of 'seen' byte \d+, which was never written at <counts a row>",
        without("clears the counts"),
    ),
    "counts before all is cleared": broken(
        SCATTER,
        r"atomic update of 'seen' byte \d+, which was never written at <counts a row>",
        without("counts are zero"),
    ),
    "publishes while others count": broken(
        SCATTER,
        rf"{RACE} on 'seen' byte \d+ with thread \d+ {NO_BARRIER} <publishes a count>",
        without("counts are complete"),
    ),
    "publishes without an atomic": broken(
        SCATTER,
        rf"race \(read after write\) on 'counts' byte \d+ {UNORDERED} <publishes a count>",
        replaced("atomicAdd(&args.counts[bin], seen[bin]);", "args.counts[bin] += seen[bin];"),
    ),
    "has a bin too few": broken(
        SCATTER,
        r"atomic update of 4 bytes out of bounds, 0 bytes past the end of 'seen' of 156 bytes at <counts a row>",
        replaced("BINS = 40", "BINS = 39"),
    ),
}
