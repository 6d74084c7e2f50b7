"""What the plan modules of the matmul family declare: members of descriptor and plan, and arguments of the table."""

from __future__ import annotations

from typing import Any

import baracuda.runtime as rt

from ..map.declared import arrays, map_pass, passes
from ..map.op import MapOp
from .op import MatmulOp


def declares(op: MatmulOp) -> tuple[dict[str, Any], ...]:
    plan = {"AXES": dict(op.axes), **{name.upper(): value for name, value in _product(op).items()}}
    if op.passes:
        axes = {name: groups for of in op.passes for name, groups in of.axes}
        plan = {"AXES": dict(op.axes) | axes, **passes(op, _pass)}
    plan |= {"INVARIANT": op.invariant}
    return {"_dims": dict(op.dims), "_space": op.space, "_chunks": dict(op.chunks)}, plan, {}


def _product(op: MatmulOp) -> dict[str, Any]:
    scalars = tuple(s.name for s in op.scalars)
    found = {"factors": op.factors, "dims": dict(op.roles), "sizes": op.sizes, "scalars": scalars}
    found |= {"weights": dict(op.weights)} if op.weights else {}
    found |= {name: dim for name, dim in (("part", op.part), ("band", op.band)) if dim}
    return found | ({"span": op.span} if op.span else {}) | ({"second": op.second} if op.second else {})


def _pass(op: MapOp, of: MapOp) -> rt.MapPass | rt.MatmulPass:
    if not isinstance(op, MatmulOp):
        return map_pass(op, of)
    if not op.made:
        return rt.MatmulPass(**arrays(op), **_product(op))
    said = arrays(op) | {"writes": tuple(name for name in arrays(op)["writes"] if name not in op.factors)}
    said |= {"codes": op.made.tensor, "paired": op.made.paired, **_product(op)}
    return rt.MadePass(**said, placed=dict(op.placed), indices=op.indices)
