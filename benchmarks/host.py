"""What one launch costs the processor: raw driver calls, plans, and other libraries, in one process on one GPU.

Queues are drained between batches, so a route is charged for its own work and never for waiting for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from baracuda.runtime.cuda import CudaDevice

from .launch_routes import GROUPS, Calls

Row = dict[str, Any]
CALLS, BATCHES = 300, 9
RAW = "raw: "  # how the routes begin that start a kernel and do nothing else


def rows() -> list[Row]:
    """A row for each route: its least microseconds a call, and how much more that is than the fastest raw launch.

    A group of routes that cannot be had, for lack of a library or a device, is one row that says why.
    """
    if not CudaDevice.available():
        return [missing("host", "no CUDA device")]
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    found: list[Row] = []
    for name, group in GROUPS.items():
        found += _measured(name, group, device.sync)
    return compared(found)


def _measured(name: str, group: Callable[[], Calls], drain: Callable[[], object]) -> list[Row]:
    try:
        return [timed(route, call, drain) for route, call in group().items()]
    except Exception as error:  # whatever a library raises, the others are still measured
        return [missing(name, f"{type(error).__name__}: {error}".splitlines()[0])]


def timed(route: str, call: Callable[[], object], drain: Callable[[], object]) -> Row:
    """The least time a call takes in batches, on a queue that is never full."""
    call()
    drain()
    best = float("inf")
    for _ in range(BATCHES):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - start) / CALLS)
        drain()
    return {"route": route, "us": round(best * 1e6, 2), "over_raw": None, "note": ""}


def missing(route: str, why: str) -> Row:
    """A row for what could not be measured."""
    return {"route": route, "us": None, "over_raw": None, "note": why}


def compared(found: list[Row]) -> list[Row]:
    """`found` with how much each row takes beyond the fastest raw launch."""
    raw = min((row["us"] for row in found if row["route"].startswith(RAW) and row["us"] is not None), default=None)
    if raw is not None:
        for row in found:
            if row["us"] is not None:
                row["over_raw"] = round(row["us"] - raw, 2)
    return found
