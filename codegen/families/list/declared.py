"""What the plan modules of the list family declare: members of descriptor and plan, and arguments of the table."""

from __future__ import annotations

from typing import Any

from ..map.declared import passes, schedules, walk
from .lower import ListOp


def declares(op: ListOp) -> tuple[dict[str, Any], ...]:
    of_walk = ("scalars", "sizes", "sums", "sum_bytes")
    plan = {name.upper(): value for name, value in walk(op).items() if name in of_walk}
    if op.passes:
        plan = passes(op)
    descriptor = {"_dims": dict(op.dims), "_space": op.space}
    return descriptor, plan, {"arch": str(op.arch), "schedules": schedules(op)}
