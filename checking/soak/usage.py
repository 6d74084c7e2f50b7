"""What a process holds: memory of the host and of a GPU, file descriptors, threads and loaded kernels."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from baracuda.runtime import get_device

from ..trials.memory import Memory

_MIB = 1 << 20
# What may be added between the end of the first phase and that of the last, and as a share of what there was. How many
# objects there are depends on the calls that plans remember.
_ALLOWED = {
    "host MiB": (32.0, 0.0),
    "malloc MiB": (4.0, 0.0),
    "device MiB": (4.0, 0.0),
    "objects": (10_000, 0.02),
}


@dataclass(frozen=True)
class Usage:
    """At a time at which nothing runs."""

    host_bytes: int  # pages of the process, but for those that Python keeps for objects to come
    malloc_bytes: int  # given out by the C library
    objects: int  # pieces of memory given out by Python's allocator
    device_bytes: int
    descriptors: int
    threads: int
    kernels: int

    def row(self) -> dict[str, float]:
        figures = asdict(self)
        memory = {name: figures.pop(f"{name}_bytes") for name in ("host", "malloc", "device")}
        return {**{f"{name} MiB": round(value / _MIB, 1) for name, value in memory.items()}, **figures}


def usage(memory: Memory) -> Usage:
    """Now, after the collection of garbage; of a GPU's memory what CuPy keeps for later does not count."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors, threads = (len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task"))
    device: Any = get_device(memory.name)
    return Usage(
        pages * resource.getpagesize() - _kept_by_python(),
        _malloc_bytes(),
        sys.getallocatedblocks(),
        _device_bytes(memory),
        descriptors,
        threads,
        len(device._kernels),
    )


def _kept_by_python() -> int:
    """Bytes of its arenas that no object has: an arena stays until its last object goes, wherever that lies."""
    figures = _python_statistics()
    arenas, given_out = (re.search(pattern, figures) for pattern in _OF_PYTHON)
    if arenas is None or given_out is None:
        return 0
    return int(arenas[1].replace(",", "")) - int(given_out[1].replace(",", ""))


_OF_PYTHON = r"bytes/arena *= *([0-9,]+)", r"bytes in allocated blocks *= *([0-9,]+)"


def _python_statistics() -> str:
    """What Python's allocator says of itself, which it writes to the C library's standard error alone."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        return file.read().decode()


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_: ClassVar = [(f"word{number}", ctypes.c_size_t) for number in range(10)]
    mapped = property(lambda self: self.word4)  # hblkhd: in pieces of pages of their own
    given_out = property(lambda self: self.word7)  # uordblks


def _malloc_bytes() -> int:
    """What all arenas have given out, without what is free in them; 0 before glibc 2.33, which cannot say."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.mapped + info.given_out)


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
        added, share = _ALLOWED.get(name, (0, 0))
        if now - before[name] > max(added, share * before[name]):
            lines.append(f"{name} grew from {before[name]:g} to {now:g}")
    return lines
