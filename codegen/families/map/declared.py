"""What the plan modules of the map family declare: members of descriptor and plan, and arguments of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import baracuda.runtime as rt

from ...lower.shared import in_one_list
from ...text import Name
from .op import MapOp


def declares(op: MapOp) -> tuple[dict[str, Any], ...]:
    plan = {"AXES": _axes(op, op.axes), **{k.upper(): v for k, v in walk(op).items()}}
    if op.passes:
        axes = {name: groups for of in op.passes for name, groups in of.axes}
        plan = {"AXES": _axes(op, {**dict(op.axes), **axes}.items()), **passes(op)}
    plan |= {"INVARIANT": op.invariant}
    descriptor = {"_dims": dict(op.dims), "_axes": dict(op.shares), "_space": op.space}
    return descriptor, plan, {"arch": str(op.arch), "schedules": schedules(op)}


def schedules(op: MapOp) -> tuple[str, ...]:
    return in_one_list(op, {e: [x.schedule for x in op.entries if x.element == e] for e in op.elements})


def _axes(op: MapOp, axes: Iterable[tuple[Name, Any]]) -> dict[Name, Any]:
    """Of arrays that have not the axes of all cells."""
    return {name: groups for name, groups in axes if groups != op.space}


def passes(op: MapOp, declared: Callable[[Any, MapOp], Any] | None = None) -> dict[str, Any]:
    """What is declared of several walks, each as `declared` says, and of what they leave for each other."""
    own = {t.name for t in op.tensors}
    held = {t.name: t.dtypes[0] for of in op.passes for t in of.tensors if t.name not in own}
    return {"HELD": held, "PASSES": tuple((declared or map_pass)(of, op) for of in op.passes)}


def walk(op: MapOp) -> dict[str, Any]:
    """What is declared of one walk over cells."""
    return {
        "summed": op.summed,
        "placed": dict(op.placed),
        "indices": op.indices,
        "cell_indices": op.cells.queried,
        "sizes": op.sizes,
        "scalars": tuple(s.name for s in op.scalars),
        "sums": op.sum_flags,
        "sum_bytes": op.sum_bytes,
        "sum_outputs": op.sum_outputs,
        "copies": dict(op.copies),
        "lists": op.lists,
        "bounds": op.bounds,
        "divisors": tuple(s.name for s in op.scalars if s.name in op.divisors),
        "fills": op.fills,
    }


def arrays(op: MapOp) -> dict[str, Any]:
    """What any pass reads and writes, and for which kinds."""
    reads, writes = (tuple(t.name for t in op.tensors if t.role != other) for other in ("out", "in"))
    return {"reads": reads, "writes": writes, "kinds": op.served, "shared": op.is_shared, "loop": op.loop}


def map_pass(op: MapOp, of: MapOp) -> rt.MapPass:
    """A pass of the op `of`."""
    writes = arrays(op)["writes"]
    said = {name: value for name, value in walk(op).items() if value != {}}
    if not op.sums or op.sum_outputs == writes:
        del said["sum_outputs"]
    return rt.MapPass(**arrays(op), space=None if op.space == of.space else op.space, **said)
