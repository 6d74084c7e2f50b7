"""What a process holds: memory of the host and of a GPU, file descriptors, threads and loaded kernels."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from baracuda.runtime import get_device

from ..trials.memory import Memory

_MIB = 1 << 20
# Megabytes that what is measured may grow by between the end of the first phase and that of the last.
_ALLOWED = {"host MiB": 32.0, "device MiB": 4.0}


@dataclass(frozen=True)
class Usage:
    """At a time at which nothing runs."""

    host_bytes: int
    device_bytes: int
    descriptors: int
    threads: int
    kernels: int

    def row(self) -> dict[str, float]:
        figures = asdict(self)
        memory = {"host MiB": figures.pop("host_bytes"), "device MiB": figures.pop("device_bytes")}
        return {**{name: round(value / _MIB, 1) for name, value in memory.items()}, **figures}


def usage(memory: Memory) -> Usage:
    """Now, after the collection of garbage; of a GPU's memory what CuPy keeps for later does not count."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors, threads = (len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task"))
    device: Any = get_device(memory.name)
    return Usage(pages * resource.getpagesize(), _device_bytes(memory), descriptors, threads, len(device._kernels))


def _device_bytes(memory: Memory) -> int:
    if memory.name == "host":
        return 0
    cupy: Any = memory.cupy  # type: ignore[attr-defined]
    pool = cupy.get_default_memory_pool()
    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free - pool.free_bytes())


def grown(measured: Sequence[Usage]) -> list[str]:
    """What has grown since the end of the first phase, which is for warming up."""
    before, after = measured[0].row(), measured[-1].row()
    lines = []
    for name, now in after.items():
        if now - before[name] > _ALLOWED.get(name, 0):
            lines.append(f"{name} grew from {before[name]:g} to {now:g}")
    return lines
