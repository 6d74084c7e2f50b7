"""What the plan modules of the body family declare: members of descriptor and plan, and arguments of the table."""

from __future__ import annotations

from typing import Any

import baracuda.runtime as rt

from .op import BodyOp


def declares(op: BodyOp) -> tuple[dict[str, Any], ...]:
    rows = tuple(
        rt.BodySchedule(str(r.arch), r.elements, str(r.schedule), r.fits, r.layout, r.first, r.math) for r in op.rows
    )
    plan = {
        "LAYOUT_AXES": {name: dict(axes) for name, axes in op.layouts},
        "BODIES": op.bodies,
        "SHAPES": dict(op.shapes),
        "SETTINGS": {s.name: s.formula for s in op.settings},
        "TERMS": dict(op.terms),
        "KERNELS": op.kernels,
        "WORKSPACE": tuple(rt.Scratch(w.name, w.dtype, w.size) for w in op.workspace),
        "MAPS": {m.arch: m.boxes for m in op.maps},
        "SCHEDULES": rows,
    }
    return {}, plan, {}
