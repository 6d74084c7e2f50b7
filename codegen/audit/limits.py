"""What an architecture gives a block of threads."""

from __future__ import annotations

from dataclasses import dataclass

STATIC_SHARED_BYTES = 48 * 1024  # of any architecture, without asking the driver for more
REGISTERS_PER_THREAD = 255
REGISTERS_PER_BLOCK = 65536
REGISTERS_PER_WARP_UNIT = 256  # a warp's registers are given out in multiples of this
THREADS_PER_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one architecture; the rest is the same for all of them."""

    shared_bytes: int  # of a block that asks the driver for all it may have


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
LIMITS = {
    "sm_80": Limits(163 * 1024),
    "sm_89": Limits(99 * 1024),
    "sm_90": Limits(227 * 1024),
    "sm_90a": Limits(227 * 1024),
    "sm_100": Limits(227 * 1024),
    "sm_120": Limits(99 * 1024),
}


def registers_of_block(registers: int, threads: int) -> int:
    """How many of an SM's registers `threads` threads with so many each take."""
    unit = REGISTERS_PER_WARP_UNIT
    return -(-registers * 32 // unit) * unit * -(-threads // 32)
