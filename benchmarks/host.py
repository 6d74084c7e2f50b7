"""Host time per launch: raw driver calls, plans, and other libraries, in one process on one GPU.

Queues are drained between batches, so a route is never charged for waiting for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from baracuda.runtime import DriverError
from baracuda.runtime.devices.cuda import CudaDevice

from .launch_routes import GROUPS, Call, Calls

Row = dict[str, Any]
CALLS, BATCHES = 300, 9
RAW = "raw: "  # how the routes begin that start a kernel and do nothing else


def rows() -> list[Row]:
    """One row per route: minimum microseconds per call, and the difference to the fastest raw launch.

    A group of routes whose library is missing is one row with the reason. Raises DriverError without a GPU.
    """
    if not CudaDevice.available():
        raise DriverError("no CUDA device to launch on; 'baracuda-gen bench --compile' needs none")
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    routes, absent = started(GROUPS)
    return compared([*timed(routes, device.sync), *absent])


def started(groups: Mapping[str, Callable[[], Calls]]) -> tuple[dict[str, Call], list[Row]]:
    """The routes of the groups, each called once, and a row for each unavailable group."""
    routes: dict[str, Call] = {}
    absent: list[Row] = []
    for name, group in groups.items():
        try:
            for route, call in group().items():
                call()
                routes[route] = call
        except Exception as error:  # whatever a library raises, the others are still measured
            absent.append(missing(name, f"{type(error).__name__}: {error}".splitlines()[0]))
    return routes, absent


def timed(routes: Mapping[str, Call], drain: Callable[[], object]) -> list[Row]:
    """The minimum time per call of each route, in interleaved batches, on a queue that is never full."""
    best = dict.fromkeys(routes, float("inf"))
    for _ in range(BATCHES):
        for route, call in routes.items():
            drain()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[route] = min(best[route], (time.perf_counter() - start) / CALLS)
    drain()
    return [{"route": route, "us": round(us * 1e6, 2), "over_raw": None, "note": ""} for route, us in best.items()]


def missing(route: str, why: str) -> Row:
    """A row for what could not be measured."""
    return {"route": route, "us": None, "over_raw": None, "note": why}


def compared(rows: list[Row]) -> list[Row]:
    """The rows, with the difference to the fastest raw launch."""
    raw = min((row["us"] for row in rows if row["route"].startswith(RAW) and row["us"] is not None), default=None)
    if raw is not None:
        for row in rows:
            if row["us"] is not None:
                row["over_raw"] = round(row["us"] - raw, 2)
    return rows
