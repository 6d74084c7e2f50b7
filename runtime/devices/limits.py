"""Limits of thread blocks by architecture."""

from __future__ import annotations

STATIC_SHARED_BYTES = 48 * 1024  # of any architecture, without asking the driver for more

# Of a block that asks the driver for all it may have.
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
SHARED_BYTES = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_87": 163 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_90a": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_103": 227 * 1024,
    "sm_120": 99 * 1024,
    "host": 227 * 1024,
}


def shared_bytes(arch: str) -> int:
    """Shared memory per block on `arch`; the common minimum for an unknown architecture."""
    return SHARED_BYTES.get(arch, 99 * 1024)
