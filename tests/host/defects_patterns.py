"""Defects of the kernels in patterns.cu and patterns_of_blocks.cu."""

from __future__ import annotations

from host import odd_patterns
from host.breaking import NO_BARRIER, RACE, UNORDERED, Defect, Edit, broken, replaced

PATTERNS: dict[str, Defect] = {
    "producer does not wait for a free slot": broken(
        odd_patterns.producer_consumer,
        rf"{RACE} on 'slot' byte \d+ with thread \d+ {NO_BARRIER} <consumes>",
        replaced("if (i >= 2) bar_sync(3 + i % 2, 96);", ""),
        Edit(r"(sum \+= slot.*)", r"\1  // consumes"),
        replaced("if (i + 2 < args.n) bar_arrive(3 + i % 2, 96);", ""),
    ),
    "consumer does not say that a slot is free": broken(
        odd_patterns.producer_consumer,
        r"block \(0,0,0\): deadlock, .*threads 0-31 in named barrier 3 at <waits>",
        replaced("if (i >= 2) bar_sync(3 + i % 2, 96);", "if (i >= 2) bar_sync(3 + i % 2, 96);  // waits"),
        replaced("if (i + 2 < args.n) bar_arrive(3 + i % 2, 96);", ""),
    ),
    "producer expects fewer threads": broken(
        odd_patterns.producer_consumer,
        r"thread \(32,0,0\): named barrier 1 is used with 96 threads here and 64 at .* at <waits>",
        replaced("bar_arrive(1 + i % 2, 96);", "bar_arrive(1 + i % 2, 64);"),
        replaced("bar_sync(1 + i % 2, 96);", "bar_sync(1 + i % 2, 96);  // waits"),
    ),
    "pairs of warps share a barrier": broken(
        odd_patterns.barriers_of_pairs,
        r"read of 'slot' byte \d+, which was never written at <reads>",
        replaced("bar_sync(1 + pair, 64);", "bar_sync(1, 64);", 2),
        replaced("value += slot[t ^ 32];", "value += slot[t ^ 32];  // reads"),
    ),
    "pair goes on without the second barrier": broken(
        odd_patterns.barriers_of_pairs,
        rf"{RACE} on 'slot' byte \d+ with thread \d+ {NO_BARRIER} <reads>",
        Edit(r"(\^ 32\];)\n.*bar_sync\(1 \+ pair, 64\);", r"\1  // reads"),
    ),
    "mail without a fence before the flag": broken(
        odd_patterns.relay,
        rf"race \(read after write\) on 'mail' byte \d+ {UNORDERED} <reads>",
        Edit(r"__threadfence\(\);(\n  __syncthreads\(\);\n  if \(threadIdx\.x == 0\) args\.flag)", r"\1"),
        Edit(r"(const int came = .*)", r"\1  // reads"),
    ),
    "flag that is not volatile": broken(
        odd_patterns.relay,
        rf"race \(.*\) on 'flag' byte \d+ {UNORDERED} (<spins>|<sets>)",
        replaced("int* mail; volatile int* flag;", "int* mail; int* flag;"),
        Edit(r"(while \(args\.flag.*)", r"\1  // spins"),
        Edit(r"(args\.flag\[b\] = 1;)", r"\1  // sets"),
    ),
    "lock without a fence": broken(
        odd_patterns.lock,
        rf"race \(read after write\) on 'sum' byte \d+ {UNORDERED} <adds>",
        Edit(r"(args\.sum\[threadIdx\.x\] \+= .*)\n  __threadfence\(\);", r"\1  // adds"),
    ),
    "half of a warp does not wait": broken(
        odd_patterns.halves,
        r"read of 'of_half' byte \d+, which was never written at <reads>",
        replaced("__syncwarp(0xffff0000u);", ""),
        Edit(r"(const int next = .*)", r"\1  // reads"),
    ),
    "votes with the mask of the other half": broken(
        odd_patterns.halves,
        r"calling lane is not in its mask: lane 16 is in __ballot_sync with mask 0000ffff at <votes>",
        replaced("__ballot_sync(0xffff0000u, next & 1));", "__ballot_sync(0x0000ffffu, next & 1));  // votes"),
    ),
    "shifts by the width of a word": broken(
        odd_patterns.compact,
        r"shift of 'int' by 32 at <marks>",
        replaced(
            "(kept & ((1u << lane) - 1))] = 1;", "(kept & ((2u << lane) - 1)) - 1] = 1 << lane + 1 ? 1 : 1;  // marks"
        ),
    ),
    "orders memory by a vote": broken(
        odd_patterns.halves,
        rf"{RACE} on 'of_half' byte \d+ with thread \d+ {NO_BARRIER} <reads>",
        replaced("__syncwarp(0xffff0000u);", "__ballot_sync(0xffff0000u, 1);"),
        Edit(r"(const int next = .*)", r"\1  // reads"),
    ),
    "reads a neighbour that is being written": broken(
        odd_patterns.in_place,
        rf"{RACE} on 'y' byte \d+ with thread \d+ {NO_BARRIER} <doubles>",
        replaced("args.x[i] * 2 + 1;", "args.x[i - i % 2] * 2 + 1;  // doubles"),
    ),
    "asks a lane that has left": broken(
        odd_patterns.early_exit,
        r"lane 3 reads inactive lane 4 in __shfl_down_sync at <shuffles>",
        replaced("const int turned = row", "__shfl_down_sync(ALL, t, 1);  // shuffles\n  const int turned = row"),
    ),
    "shows its own variables to the block": broken(
        odd_patterns.in_place,
        r"read of local memory of thread 0 at <looks>",
        Edit(
            r"^  if \(i < args\.n\) args\.y\[i\] = args\.x\[i\] \* 2 \+ 1;",
            "  __shared__ volatile float* shown;\n  volatile float own = i;\n  if (threadIdx.x == 0) shown = &own;\n"
            "  __syncthreads();\n  if (i < args.n) args.y[i] = *shown;  // looks",
        ),
    ),
    "asks a lane that is elsewhere": broken(
        odd_patterns.divergent_shuffles,
        r"reads inactive lane \d+ in __shfl_sync at <shuffles>",
        replaced("first = __ffs(odd) - 1;", "first = __ffs(~odd) - 1;"),
        Edit(r"(value \+= 1000 .*)", r"\1  // shuffles"),
    ),
    "uses shared memory again while it is read": broken(
        odd_patterns.sliced_shared,
        rf"race \(write after read\) on 'dynamic shared memory' byte \d+ with thread \d+ {NO_BARRIER} <writes>",
        Edit(r"(const int other = .*)\n  __syncthreads\(\);", r"\1"),
        Edit(r"(for \(int k.*again.*value \+ k;)", r"\1  // writes"),
    ),
    "one buffer for ping and pong": broken(
        odd_patterns.ping_pong,
        rf"race \((read after write|write after read)\) on 'cells' byte \d+ with thread \d+ {NO_BARRIER} <moves>",
        replaced("step++, from ^= 1", "step++"),
        Edit(r"cells\[from \^ 1\]\[t\] = (.*)", r"cells[from][t] = \1  // moves"),
    ),
    "counts in the block without an atomic": broken(
        odd_patterns.same_word,
        rf"race \((read|write) after write\) on 'of_block' byte 0 with thread \d+ {NO_BARRIER} <counts>",
        replaced("atomicAdd(&of_block, 1);", "of_block++;  // counts"),
    ),
    "never settles": broken(
        odd_patterns.until_settled,
        r"launch timeout",
        replaced("while (__syncthreads_or(moved));", "while (__syncthreads_or(1));"),
    ),
    "waits only in the warp that copied": broken(
        odd_patterns.copied_by_one_warp,
        r"read of 'rows' byte \d+ while a cp.async of thread \d+ may be writing there at <reads>",
        replaced("if (t < 32) cp_async_wait_all();", ""),
        replaced("args.y[t] = sum + rows[1][127 - t];", "args.y[t] = sum + rows[1][127 - t];  // reads"),
    ),
    "copies to global memory": broken(
        odd_patterns.copied_by_one_warp,
        r"cp.async to byte \d+ of 'y' of 384 bytes in global memory: needs shared memory at <copies>",
        Edit(r"&own\[t\], (args.x.*)", r"args.y + t, \1  // copies"),
    ),
    "copies from shared memory": broken(
        odd_patterns.copied_by_one_warp,
        r"cp.async from byte \d+ of 'own' of 384 bytes in shared memory: needs global memory at <copies>",
        Edit(r"(cp_async_cg\(.*), args.*", r"\1, &own[4 * (t % 24)]);  // copies"),
    ),
    "does not wait for the warp that copied": broken(
        odd_patterns.copied_by_one_warp,
        r"read of 'rows' byte \d+ while a cp.async of thread \d+ may be writing there at <reads>",
        Edit(r"(cp_async_wait_all\(\);)\n  __syncthreads\(\);", r"\1"),
        replaced("args.y[t] = sum + rows[1][127 - t];", "args.y[t] = sum + rows[1][127 - t];  // reads"),
    ),
    "needs more stack than there is": broken(
        odd_patterns.ping_pong,
        r"stack overflow, local arrays over \d+ KiB",
        replaced("int from = 0;", "int from = 0;\n  volatile char all[300 << 10];\n  all[args.n] = 1;\n"),
    ),
}
