"""Checks of bits that may not depend on the order of work, the architecture, or the rest of the batch."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from copy import copy
from fractions import Fraction
from typing import Any
from zlib import crc32

import numpy as np

from baracuda.codegen.program import parse
from baracuda.codegen.program.tree import Query, walk
from baracuda.codegen.spec.scope import scope_of
from baracuda.codegen.spec.spec import OpSpec, ProgramSpec
from baracuda.runtime import BaracudaError, PlanPreference, Unsupported, get_device

from ..oracles.oracle import with_saved
from ..problems.problem import Arrays, Problem
from ..problems.turns import anew
from ..trials.arrange import arrange, same_bits
from ..trials.memory import HostMemory, Memory
from ..trials.trial import wrong_in
from ..variables import SAMPLE
from .agreement import compared, label_of, promised_by, require_same

# Of threads, a seed, OS threads, and of blocks.
_ORDERS = (
    ("reverse", 0, 1, "in order"),
    ("random", 1, 2, "in order"),
    ("random", 2, 1, "interleaved"),
)
_MULTIPROCESSORS = (1, 2, 13)


def check_orders(problem: Problem, memory: HostMemory) -> None:
    """Whatever the order of threads and blocks and the number of multiprocessors, promised bits stay the same."""
    device = memory.device
    arrays, _ = with_saved(problem, problem.draw(seed=12), problem.stored_types(), problem.draw_hidden(seed=12))
    base = arrange(problem, arrays, memory).run()
    _require_moved(problem, arrays, base)
    before = device.order, device.seed, device.workers, device.blocks
    try:
        for order in _ORDERS:
            device.order, device.seed, device.workers, device.blocks = order
            outputs = arrange(problem, arrays, memory).run()
            require_same(problem, base, outputs, promised_by(problem, "deterministic"), f"order {order}")
    finally:
        device.order, device.seed, device.workers, device.blocks = before
    check_multiprocessors(problem, arrays, base, memory)


def check_multiprocessors(problem: Problem, arrays: Arrays, base: Arrays, memory: Memory) -> None:
    """Outputs that are to have their bits everywhere keep those of `base` in grids for other devices."""
    device: Any = get_device(memory.name)
    before = device.multiprocessors
    try:
        for device.multiprocessors in _MULTIPROCESSORS:
            outputs = arrange(problem, arrays, memory).run(anew(problem).plan)
            change = f"{device.multiprocessors} multiprocessors"
            require_same(problem, base, outputs, promised_by(problem, "bit_stable_across_arch"), change)
    finally:
        device.multiprocessors = before


def check_architectures(problem: Problem, archs: Collection[str], memory: Memory) -> None:
    """A kernel that promises its bits everywhere has those of the kernel that each other architecture selects."""
    promised, rungs = promised_by(problem, "bit_stable_across_arch"), frozenset({"bit_stable_across_arch"})
    arrays, _ = with_saved(problem, problem.draw(seed=12), problem.stored_types(), problem.draw_hidden(seed=12))
    base = arrange(problem, arrays, memory).run()
    for arch in archs:
        other = copy(problem)
        preference = PlanPreference(rungs=rungs, archs=frozenset({arch}), **problem.asked)
        try:
            other.plan = type(problem.plan).select(problem.descriptor, preference)
        except Unsupported:
            continue
        outputs = arrange(other, arrays, memory).run()
        require_same(problem, base, outputs, promised, f"{other.plan.sku.symbol}, which {arch} selects")


def _require_moved(problem: Problem, arrays: Arrays, outputs: Arrays) -> None:
    """Outputs that are said to be moved hold nothing but values of inputs of their type, and 0."""
    for argument, name in problem.results.items():
        if getattr(problem.spec.outputs[name], "moved", False):
            alike = [a.reshape(-1) for a in arrays.values() if a.dtype == outputs[argument].dtype]
            strange = ~np.isin(outputs[argument], np.concatenate([*alike, np.zeros(1, outputs[argument].dtype)]))
            if strange.any():
                value = outputs[argument][strange][0]
                raise AssertionError(f"{label_of(problem)}: {argument!r} is to be moved, but {value} is in no input")


_MOST_PLACES = 16
_BATCHES = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33)


def check_batch_invariance(problem: Problem, memory: Memory) -> None:
    """Rows and samples have the same bits in half of a batch, whichever kernel serves that, wherever in it they lie.

    In a sampled run it begins at one place, which varies, otherwise at each.
    """
    promised, batch = _batch_invariant(problem), problem.batch or 0
    if promised and batch > 1:
        _require_same_rows(problem, problem.with_batch(batch // 2), promised, memory)


def check_batch_choice(problem: Problem, memory: Memory) -> None:
    """Rows and samples have the same bits in the nearest batch that another kernel serves."""
    promised, batch = _batch_invariant(problem), problem.batch or 0
    for count in sorted(_BATCHES, key=lambda count: abs(count - batch)) if promised and batch else ():
        try:
            other = problem.with_batch(count)
        except BaracudaError:  # a requirement, or no kernel
            continue
        if other.plan.sku != problem.plan.sku:
            whole, part = (other, problem) if count > batch else (problem, other)
            _require_same_rows(whole, part, promised, memory)
            return


def _batch_invariant(problem: Problem) -> list[str]:
    return [name for name, rungs in problem.plan.promises.items() if "batch_invariant" in rungs]


def _require_same_rows(whole: Problem, part: Problem, promised: list[str], memory: Memory) -> None:
    """The part of a batch has the bits that it has in the whole."""
    arrays, _ = with_saved(whole, whole.draw(seed=7), whole.stored_types(), whole.draw_hidden(seed=7))
    base = arrange(whole, arrays, memory).run()
    for place in _places(whole, part):
        share = Fraction(place, (whole.batch or 0) - (part.batch or 0))
        cut = {n: _from(a, part.shape_of(n), share) for n, a in arrays.items()}
        outputs = arrange(part, cut, memory).run()
        for name in promised:
            if name in outputs and not same_bits(_from(base[name], part.shape_of(name), share), outputs[name]):
                kernel = "" if part.plan.sku == whole.plan.sku else f", which {part.plan.sku.symbol} serves"
                where = f"a batch of {part.batch}, the part from {place} on{kernel}"
                raise AssertionError(f"{label_of(whole)}: {name!r} has other bits in {where}")


def _places(whole: Problem, part: Problem) -> Sequence[int]:
    """Where in the whole the part is to begin: everywhere, in large batches at some places, in a sampled run at one."""
    places = every_place(whole, part)
    if SAMPLE in os.environ:
        return [places[crc32(label_of(whole).encode()) % len(places)]]
    last, turns = len(places) - 1, min(len(places) - 1, _MOST_PLACES)
    return sorted({places[last * turn // max(turns, 1)] for turn in range(turns + 1)})


def every_place(whole: Problem, part: Problem) -> Sequence[int]:
    """Where in the whole the part may begin.

    Where a program numbers the batch, as rows that arrays of ends give to groups, it begins where the whole does.
    """
    return range(1 if _is_numbered(whole.spec) else (whole.batch or 0) - (part.batch or 0) + 1)


def _is_numbered(spec: OpSpec) -> bool:
    """Whether a program reads the index of the batch."""
    if not isinstance(spec, ProgramSpec):
        return False
    batch = {Query("index", name) for name, dim in spec.dims.items() if dim.of == spec.tests.batch}
    lines = [line for of in spec.by_kind.values() for line in parse(of.program, scope_of(of))]
    return any(part in batch for line in lines for part in walk(line.expr))


def check_asynchrony(problem: Problem, memory: HostMemory) -> None:
    """Results are right and have the same bits whenever TMA and wgmma do their work, in whatever order threads run.

    First on one multiprocessor, so that blocks which stay take several turns; then in blocks that take turns.
    """
    types = problem.stored_types()
    arrays, exact = with_saved(problem, problem.draw(seed=3), types, problem.draw_hidden(seed=3))
    with memory.multiprocessors(1):
        late = _late_and(problem, arrays, memory, problem.plan, "early", "reverse", "in order")
        if wrong := wrong_in(compared(problem, arrays, exact, late, types)):
            raise AssertionError(f"{label_of(problem)}, on one multiprocessor: {wrong}")
    _late_and(problem, arrays, memory, anew(problem).plan, "random", "random", "interleaved")


def _late_and(problem: Problem, arrays: Arrays, memory: HostMemory, plan: Any, *how: str) -> Arrays:
    """Results with everything done late, after a comparison with those of another asynchrony, order and blocks."""
    device = memory.device
    late = arrange(problem, arrays, memory).run(plan)
    before = device.asynchrony, device.order, device.blocks, device.seed
    device.asynchrony, device.order, device.blocks, device.seed = *how, 17
    try:
        outputs = arrange(problem, arrays, memory).run(plan)
    finally:
        device.asynchrony, device.order, device.blocks, device.seed = before
    for name in late:
        if not same_bits(late[name], outputs[name]):
            said = "asynchrony {!r}, order {!r} and blocks {!r}".format(*how)
            raise AssertionError(f"{label_of(problem)}: {name!r} has other bits with {said}")
    return late


def _from(array: np.ndarray[Any, Any], shape: tuple[int, ...], share: Fraction) -> np.ndarray[Any, Any]:
    return np.array(array[cut(array.shape, shape, share)])  # also of no axes


def cut(whole: Sequence[int], part: Sequence[int], share: Fraction) -> tuple[slice, ...]:
    """The part of a shape that begins after a share of what is beyond it, along each axis."""
    starts = [int((extent - size) * share) for extent, size in zip(whole, part, strict=False)]
    return tuple(slice(start, start + size) for start, size in zip(starts, part, strict=True))
