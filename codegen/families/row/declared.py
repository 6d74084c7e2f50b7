"""What the plan modules of the row family declare: members of descriptor and plan, and arguments of the table."""

from __future__ import annotations

from typing import Any

from ...lower.shared import grouped
from .op import RowOp


def declares(op: RowOp) -> tuple[dict[str, Any], ...]:
    tiles = [(element, tuple(map(str, tiles))) for element, tiles in op.tiles]
    plan = {
        "SCALARS": tuple(s.name for s in op.scalars),
        "COLUMN_SUMS": op.column_flags,
        "ROW_REDUCTIONS": len(op.reductions),
    }
    return {"_shape": op.shape, "_cols": op.col_axes}, plan, {"arch": str(op.arch), "tiles": grouped(tiles)}
