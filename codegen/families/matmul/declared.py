"""What the plan modules of the matmul family declare: members of descriptor and plan, and arguments of the table."""

from __future__ import annotations

from typing import Any

from .op import MatmulOp


def declares(op: MatmulOp) -> tuple[dict[str, Any], ...]:
    plan = {
        "AXES": dict(op.axes),
        "FACTORS": op.factors,
        "DIMS": dict(op.roles),
        "SIZES": op.sizes,
        "SCALARS": tuple(s.name for s in op.scalars),
    }
    return {"_dims": dict(op.dims), "_space": op.space}, plan, {}
