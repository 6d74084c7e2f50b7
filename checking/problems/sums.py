"""Problems whose sums lose a small number beside a huge one, which then cancels, unless they are compensated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from baracuda.codegen.conditions.parse import fields_of
from baracuda.runtime import ElementKind, KernelSku, Schedule
from baracuda.runtime.families.map.geometry import Cut

from .cases import could_serve, server
from .edges import Place
from .problem import Arrays, Problem, ProgramProblem
from .shrunken import extents_of, shrunken, with_extents
from .subject import Subject

_SMALL, _HUGE = 2.0**-13, 2.0**14  # both in halves; in f32 the sum of the two is the huge one
_DEEPER = 2.0**-15  # in f64
ORDERS = ("small", "huge", "-huge"), ("huge", "small", "-huge")
_LANES = 32


def in_turns(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[ProgramProblem]:
    """Problems in each sum of which a thread takes three turns, one in each third of the terms."""
    serve = server(subject, sku, bases)
    for base in sorted(bases, key=lambda problem: (not problem.several, problem.size)):
        for extents in _extents(sku, base) if isinstance(base, ProgramProblem) and base.walks_space else ():
            case = with_extents(base, extents)
            problem = serve(subject, case, sku) if could_serve(subject, sku, case) else None
            small = None if problem is None else shrunken(problem)
            if isinstance(small, ProgramProblem) and _has_turns(small):
                yield small


def _extents(sku: KernelSku, base: ProgramProblem) -> Iterator[Mapping[Place, int]]:
    """Three by what threads take at a time, along one summed axis or two; cells for a warp, or as many as there are."""
    fields = {name for dim in base.plan.SUMMED for name in fields_of(base.spec.dims[dim].of)}
    summed = [place for place in extents_of(base) if place[0] in fields]
    kept = [place for place in extents_of(base) if place[0] not in fields][-1:]
    assert isinstance(sku.schedule, Schedule)
    vec, packs = 16 // sku.element.row.bytes, sku.schedule["packs"]
    for (lead, inner), turn in product(product(summed, repeat=2), (packs, _LANES * packs * vec)):
        thirds = {lead: 3, inner: turn} if lead != inner else {lead: 3 * turn}
        for cells in ({}, dict.fromkeys(kept, _LANES * vec)):
            yield {**dict.fromkeys(summed, 1), **thirds, **cells}


def _has_turns(problem: ProgramProblem) -> bool:
    cut, sku = problem.plan._cut, problem.plan.sku
    if cut is None or cut.walk not in ("rows", "columns", "lists") or (isinstance(cut, Cut) and cut.splits > 1):
        return False
    lanes = cut.slices * (16 // sku.element.row.bytes) if cut.walk == "rows" else 1
    alone = cut.slices == 1 or (cut.walk == "rows" and cut.slices <= _LANES)
    terms = prod(problem.space.extents[dim] for dim in problem.plan.SUMMED)
    return bool(alone and terms == 3 * lanes * sku.schedule["packs"])


def in_thirds(problem: ProgramProblem, arrays: Arrays, order: Sequence[str]) -> Arrays:
    """Inputs that vary as sums' terms do hold the numbers of `order` in the thirds of these, 0 for another name.

    Whole numbers are 0, so that all terms are of one list where they are the keys of lists.
    """
    small = _SMALL * (_DEEPER if problem.element.row.acc == ElementKind.F64 else 1)
    named = {"small": small, "huge": _HUGE, "-huge": -_HUGE}
    dims = list(problem.spec.dims)
    summed = [dim for dim in dims if dim in problem.plan.SUMMED]
    terms = prod(problem.space.extents[dim] for dim in summed)
    varying = [problem.space.extents[dim] if dim in summed else 1 for dim in dims]
    numbers = np.choose(np.arange(terms) * 3 // terms, [named.get(name, 0.0) for name in order]).reshape(varying)
    changed = {}
    for name, array in arrays.items():
        flat = problem.flat(name, array)
        if all(flat.shape[dims.index(dim)] == problem.space.extents[dim] for dim in summed):
            whole = array.dtype.kind in "iu"
            flat = np.broadcast_to(numbers * (not whole), flat.shape).astype(array.dtype)
            flat += 1j * flat if array.dtype.kind == "c" else 0
        changed[name] = np.ascontiguousarray(problem.caller(name, flat, array.shape)).reshape(array.shape)
    return changed
