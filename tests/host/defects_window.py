"""Defects of the kernels in window.cu."""

from __future__ import annotations

from functools import partial

from host import families
from host.breaking import NO_BARRIER, RACE, UNORDERED, Defect, Edit, broken, replaced, without

CONVOLVE = partial(families.convolve, 2, 37, 36)
POOL = partial(families.max_pool, 2, 61, 45)

WINDOW: dict[str, Defect] = {
    "overwrites the halo's source": broken(
        CONVOLVE,
        rf"race \((write after read|read after write)\) on 'rows' byte \d+ with thread \d+ {NO_BARRIER} .*"
        "(<fills the window>|<carries the halo>)",
        without("the halo is saved"),
    ),
    "fills the window from odd columns on": broken(
        CONVOLVE,
        r"misaligned access to 'struct Pack', byte 1924 of 'rows' of 2432 bytes: "
        r"needs a multiple of 16, is 4 beyond one at <fills the window>",
        replaced("&rows[HALO + r][c4]", "&rows[HALO + r][c4 + 1]"),
    ),
    "applies taps before the window is full": broken(
        CONVOLVE,
        r"read of 'rows' byte \d+, which was never written at <applies the taps>",
        without("the window is full"),
    ),
    "moves the window while it is read": broken(
        CONVOLVE,
        rf"{RACE} on 'rows' byte \d+ with thread \d+ {NO_BARRIER} <applies the taps>",
        without("the window is used"),
    ),
    "begins with a halo that nobody wrote": broken(
        CONVOLVE,
        r"read of 'rows' byte \d+, which was never written at <carries the halo>",
        replaced("t0 ? rows[TIMES + lane][c] : 0", "rows[TIMES + lane][c]"),
    ),
    "reads times beyond the last": broken(
        CONVOLVE,
        r"read of 16 bytes out of bounds, \d+ bytes past the end of 'x' .* at pack\.cuh:\d+ <- <reads four channels>",
        replaced("if (t0 + r < args.length && channel0 + c4", "if (channel0 + c4"),
    ),
    "reads weights of channels beyond the last": broken(
        CONVOLVE,
        r"read of 4 bytes out of bounds, \d+ bytes past the end of 'weight' .* at <reads the weights>",
        Edit(r"if \(channel < args\.channels\) \{", "{"),
    ),
    "has a row too few": broken(
        CONVOLVE,
        r"index 18 is outside 'float \[18\]\[32\]' at <fills the window>",
        replaced("rows[HALO + TIMES][WIDE]", "rows[HALO + TIMES - 1][WIDE]"),
    ),
    "lets some warps skip a barrier": broken(
        CONVOLVE,
        r"read of 'rows' byte \d+, which was never written at <applies the taps>",
        replaced("__syncthreads();  // the window is full", "if (lane < HALO) __syncthreads();  // the window is full"),
    ),
    "reads times before the first": broken(
        POOL,
        r"read of 4 bytes out of bounds, 360 bytes before 'x' .* at <reads a row>",
        replaced("if (t >= 0 && t < args.length)", "if (t < args.length)"),
    ),
    "leaves what is outside as it is": broken(
        POOL,
        r"read of 'rows' byte \d+, which was never written at <compares>",
        replaced("rows[r][c] = value;", "if (t >= 0 && t < args.length) rows[r][c] = value;"),
    ),
    "has too few rows for the last window": broken(
        POOL,
        r"(index 24 is outside 'float \[24\]\[32\]'|.*'rows' .*) at (<compares>|<fills a row>)",
        replaced("ROWS = (OUTPUTS - 1) * STRIDE + WINDOW;", "ROWS = OUTPUTS * STRIDE;"),
    ),
    "writes outputs beyond the last": broken(
        POOL,
        rf"race \(write after write\) on 'y' byte \d+ {UNORDERED} <writes the largest>"
        r"|write of 4 bytes out of bounds, .*'y' .* at <writes the largest>",
        replaced("o < OUTPUTS && first + o < args.outputs;", "o < OUTPUTS;"),
    ),
    "compares before rows are there": broken(
        POOL, r"read of 'rows' byte \d+, which was never written at <compares>", without("rows are there")
    ),
    "divides by what may be zero": broken(
        POOL,
        r"integer division by zero or overflow at <begins>",
        replaced("t0 = first * STRIDE - BEFORE;", "t0 = first * STRIDE - BEFORE / (args.channels / 64);  // begins"),
    ),
}
