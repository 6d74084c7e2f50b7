"""Limits of thread blocks common to all architectures; runtime/devices/limits.py has those that differ."""

from __future__ import annotations

# The architectures that a spec may name.
ARCHS = ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
# Those of GPUs, from the last one that no kernel is for; and what kernels are compiled for.
DEVICES = (
    *("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90"),
    *("sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121"),
)
TARGETS = (*DEVICES, "sm_90a")
AN_EXAMPLE = "an H100 is sm_90"
REGISTERS_PER_THREAD = 255
REGISTERS_PER_BLOCK = 65536
REGISTERS_PER_WARP_UNIT = 256  # a warp's registers are given out in multiples of this
THREADS_PER_BLOCK = 1024


def registers_of_block(registers: int, threads: int) -> int:
    """The registers of an SM that a block of `threads` threads takes."""
    unit = REGISTERS_PER_WARP_UNIT
    return -(-registers * 32 // unit) * unit * -(-threads // 32)
