"""What the plan modules of the row family declare: members of descriptor and plan, and arguments of the table."""

from __future__ import annotations

from typing import Any

from baracuda.runtime.families.row.plan import TILES
from baracuda.runtime.plans.registry import by_element

from ...lower.shared import in_one_list
from .op import RowOp


def declares(op: RowOp) -> tuple[dict[str, Any], ...]:
    plan = {
        "SCALARS": tuple(s.name for s in op.scalars),
        "COLUMN_SUMS": op.column_flags,
        "ROW_REDUCTIONS": len(op.reductions),
    }
    tiles = in_one_list(op, dict(op.tiles))
    of_elements = {*by_element(op.elements, tiles)}
    named = (name for name, usual in TILES.items() if {*by_element(op.elements, usual)} == of_elements)
    table = {"arch": str(op.arch), "tiles": next(named, tiles)}
    return {"_shape": op.shape, "_cols": op.col_axes}, plan, table
