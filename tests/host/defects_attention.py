"""Defects of the kernels in attention.cu."""

from __future__ import annotations

from functools import partial

from host import families
from host.breaking import IN_FLIGHT, NO_BARRIER, Defect, Edit, broken, replaced, without

PLAIN = partial(families.attention, 1, 70, 90, 40)

ATTENTION: dict[str, Defect] = {
    "never waits for its copies": broken(
        PLAIN,
        rf"read of 'dynamic shared memory' byte \d+ {IN_FLIGHT} .*<reads queries>",
        replaced("cp_async_wait_group<1>();", ""),
    ),
    "leaves a group too many in flight": broken(
        PLAIN,
        rf"read of 'dynamic shared memory' byte \d+ {IN_FLIGHT} .*<reads queries>",
        replaced("cp_async_wait_group<1>();", "cp_async_wait_group<2>();"),
    ),
    "reads what other threads copy": broken(
        PLAIN,
        r"read of 'dynamic shared memory' byte \d+, which was never written at .*<reads queries>",
        without("this step's tiles are there"),
    ),
    "copies over tiles that are read": broken(
        PLAIN,
        rf"race \(write after read\) on 'dynamic shared memory' byte \d+ with thread \d+ {NO_BARRIER} <copies a chunk>",
        without("this step's tiles are used"),
    ),
    "copies into the tile it reads": broken(
        PLAIN,
        rf"write of 'dynamic shared memory' byte \d+ {IN_FLIGHT} <copies a chunk>",
        replaced("tiles->key[turn ^ 1]", "tiles->key[turn]"),
    ),
    "exits while copies are in flight": broken(
        PLAIN,
        r"the thread exits while cp.async is in flight, issued at <copies a chunk>",
        replaced("if (step + 1 < steps) {", "{"),
    ),
    "asks for too little shared memory": broken(
        PLAIN,
        r"write of 16 bytes out of bounds, \d+ bytes past the end of 'dynamic shared memory' .* at <copies a chunk>",
        replaced("DYN_SHARED_BYTES sizeof(Tiles)", "DYN_SHARED_BYTES (sizeof(Tiles) - 2048)"),
    ),
    "pads rows by half a chunk": broken(
        PLAIN,
        r"cp.async address is not aligned to its size at <copies a chunk>",
        replaced("row * SIZE +", "row * (SIZE + 4) +"),
    ),
    "reads matrices from odd addresses": broken(
        PLAIN,
        r"ldmatrix row address is not 16-byte aligned at <reads keys>",
        replaced("tiles->key[turn] + at", "tiles->key[turn] + 4 + at"),
    ),
    "reads matrices from global memory": broken(
        PLAIN,
        r"ldmatrix from byte 0 of 'k' of \d+ bytes in global memory: needs shared memory at <reads keys>",
        Edit(r"tiles->key\[turn\] \+ at.*\)(\);  // reads keys)", r"args.k\1"),
    ),
    "reads queries beyond the last": broken(
        PLAIN,
        r"read of 16 bytes out of bounds, \d+ bytes past the end of '[qkv]' .* at <copies a chunk>",
        replaced("first + row < rows && chunk", "chunk"),
    ),
    "writes rows beyond the last": broken(
        PLAIN,
        r"write of 4 bytes out of bounds, \d+ bytes past the end of 'o' .* at .*<writes two elements>",
        replaced("if (row >= args.queries) continue;", ""),
    ),
    "writes columns beyond the last": broken(
        PLAIN,
        rf"race \(write after write\) on 'o' byte \d+ with thread \d+ {NO_BARRIER} .*<writes two elements>",
        replaced("if (col >= size) break;", ""),
    ),
    "multiplies in half of the warp": broken(
        PLAIN,
        r"warp \d diverges, lane 31 is in mma_m16n8k16_bf16 with mask ffffffff at <multiplies>, lane 0 is in "
        "mma_m16n8k16_bf16 with mask ffffffff at <multiplies half>",
        replaced(
            "mma_m16n8k16_bf16(score[n], query[d], key);",
            "if (lane < 16) mma_m16n8k16_bf16(score[n], query[d], key);  // multiplies half",
        ),
        Edit(r"(mma_m16n8k16_bf16\(score\[n\], query\[d \+ 1\].*)", r"\1  // multiplies"),
    ),
    "reads values of the wrong buffer": broken(
        PLAIN,
        rf"read of 'dynamic shared memory' byte \d+ {IN_FLIGHT} .*<reads values>",
        replaced("tiles->value[turn] + at", "tiles->value[turn ^ 1] + at"),
    ),
}
