"""A check per guarantee of a spec: it runs kernels and raises AssertionError where the guarantee is broken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import cycle, islice, product
from typing import Any

import numpy as np

from baracuda.runtime import BaracudaError, ElementKind, KernelInternal, PlanPreference, Unsupported
from baracuda.runtime.arrays.axes import contiguous_strides

from ..oracles.accuracy import Accuracy, as_float, compare
from ..oracles.oracle import explicit, tolerances, widen, with_saved
from ..oracles.references import definition
from ..problems.body import BodyProblem
from ..problems.map import MapProblem
from ..problems.problem import Arrays, Problem
from ..problems.row import RowProblem
from ..problems.shrunken import MULTIPROCESSORS
from ..problems.sums import ORDERS, in_thirds
from ..problems.turns import anew
from ..repro.bundle import offer
from ..trials.arrange import Choice, arrange, same_bits
from ..trials.memory import LONE, PATTERNS, HostMemory, Memory, Placed
from ..trials.trial import Trial, message_of, trial, wrong_in

LOOSEST = 0.05  # fraction of the bound that a SKU's worst error must reach, so that the bound can fail
LARGE = 1 << 17  # elements; on the host device larger problems are drawn in one style, the one with the largest errors


def check_accuracy(problems: list[Problem], memory: Memory, *, tight: bool = True) -> None:
    """Errors against the oracle are within the declared bound on every problem and style.

    Integer outputs must be equal. With `tight`, the worst error must reach LOOSEST of the bound.
    """
    if not problems:
        raise AssertionError("no test problem selects this kernel; add a case")
    worst: dict[str, Accuracy] = {}
    for problem in problems:
        for style in _styles(problem, memory):
            for name, accuracy in _within(drawn(problem, style), memory, f"{style} inputs").items():
                if name not in worst or accuracy.worst_ratio > worst[name].worst_ratio:
                    worst[name] = accuracy
    for name, accuracy in worst.items() if tight else ():
        if 0 < accuracy.worst_ratio < LOOSEST:
            reached = f"the worst error is {accuracy.worst_ratio:.3f} of it, needs {LOOSEST}"
            kind = problems[0].element
            fix = f"declare a smaller precision.bound.{kind}.c2"
            raise AssertionError(f"the bound of {name!r} is loose: {reached}; {fix}")


def _styles(problem: Problem, memory: Memory) -> tuple[str, ...]:
    alone = problem.size > LARGE and memory.name == "host" and "spread" in problem.STYLES
    return ("spread",) if alone else problem.STYLES


def measured(problem: Problem, memory: Memory, style: str) -> dict[str, Accuracy]:
    """Run once on inputs of a style of `STYLES` and compare each output with the oracle."""
    return drawn(problem, style).measure(memory)


def drawn(problem: Problem, style: str) -> Trial:
    """Inputs of a style of `STYLES`, with expected outputs and bounds."""
    types = problem.stored_types()
    arrays, exact = with_saved(problem, problem.draw(style), types, problem.draw_hidden(style))
    return trial(problem, arrays, exact, tolerances(problem, arrays, exact, types))


def _within(case: Trial, memory: Memory, variant: str) -> dict[str, Accuracy]:
    """Measure a trial; a failure may be saved for `repro`."""
    label = f"{_of(case.problem)}, {variant}"
    try:
        accuracies = case.measure(memory)
    except KernelInternal as error:
        raise KernelInternal(f"{label}: {error}{offer(case, message_of(error), memory)}") from error
    if wrong := wrong_in(accuracies):
        raise AssertionError(f"{label}: {wrong}{offer(case, wrong, memory)}")
    return accuracies


def check_problem(
    problem: Problem,
    memory: Memory,
    patterns: Mapping[str, str] | None = None,
    style: str = "normal",
    variant: str = "at an edge",
) -> None:
    """Errors against the oracle are within the declared bound, for arrays in the given layouts."""
    case = replace(drawn(problem, style), patterns=patterns or {})
    _within(case, memory, f"arrays {sorted({*case.patterns.values()})}" if patterns else variant)


def check_shrunken(problem: Problem, memory: HostMemory) -> None:
    """With few blocks, splits and multiprocessors, each of which has several turns, errors are within the bound."""
    with memory.multiprocessors(MULTIPROCESSORS):
        for style in ("normal", "constant"):
            variant = f"schedule {problem.plan.sku.schedule}, {style} inputs"
            check_problem(problem, memory, style=style, variant=variant)


def check_explicit(problem: Problem, memory: Memory) -> None:
    """With arbitrary saved tensors, the outputs follow the op's own formula."""
    types = problem.stored_types()
    arrays, _ = with_saved(problem, problem.draw(seed=3), types, problem.draw_hidden(seed=3))
    rng = np.random.default_rng(4)
    for name in sorted(problem.saved):
        if name in arrays:
            arrays[name] = np.asarray(rng.uniform(0.5, 2.0, arrays[name].shape), arrays[name].dtype)
    exact = explicit(problem, widen(problem, arrays)) or {}
    bound = tolerances(problem, arrays, exact, types, saved={})
    _within(trial(problem, arrays, exact, bound), memory, "arbitrary saved values")


def check_stored_types(problem: Problem, memory: Memory) -> None:
    """Results are within the bound for every choice of element types that the spec allows."""
    for choice in choices_of(problem):
        types = problem.stored_types(choice)
        arrays, exact = with_saved(problem, problem.draw(seed=5, choice=choice), types, problem.draw_hidden(seed=5))
        bound = tolerances(problem, arrays, exact, types)
        _within(trial(problem, arrays, exact, bound, choice), memory, _listed(choice))


def check_compensation(problems: Iterable[MapProblem], memory: Memory) -> MapProblem | None:
    """A sum does not lose a small number that a huge one is added to, or that is added to it, and that then cancels.

    On the first problem in which it does: the sum is exact but for the rounding of its output. Returns the problem.
    """
    for problem in problems:
        arrays, _ = with_saved(problem, problem.draw(), problem.stored_types(), problem.draw_hidden())
        cancelling = [found for order in ORDERS if (found := _cancelling(problem, arrays, order))]
        for inputs, exact in cancelling:
            outputs = arrange(problem, inputs, memory).run()
            for argument, wanted in exact.items():
                got = problem.flat(argument, as_float(outputs[argument]))
                if np.any(np.abs(got - wanted) > problem.stored_types()[argument].row.unit_roundoff * np.abs(wanted)):
                    lost = f"{argument!r} is {got.flat[0]:.9g}, needs {wanted.flat[0]:.9g}"
                    raise AssertionError(f"{_of(problem)}, a small number and huge ones that cancel: {lost}")
        if cancelling:
            return problem
    return None


def _cancelling(problem: MapProblem, arrays: Arrays, order: Sequence[str]) -> tuple[Arrays, Arrays] | None:
    """Inputs in thirds, and sums by argument, if these are what the small numbers alone give."""
    inputs, small = in_thirds(problem, arrays, order), [name if name == "small" else "" for name in order]
    exact = explicit(problem, widen(problem, inputs)) or {}
    alone = explicit(problem, widen(problem, in_thirds(problem, arrays, small))) or {}
    sums = {argument: name for argument, name in problem.results.items() if argument in problem.plan.SUM_OUTPUTS}
    if not sums or any(not np.any(alone[name]) or np.any(exact[name] != alone[name]) for name in sums.values()):
        return None
    return inputs, {argument: np.asarray(exact[name], np.float64) for argument, name in sums.items()}


def choices_of(problem: Problem) -> Iterator[dict[str, ElementKind]]:
    """Each tensor of chosen type with each of its other types, then all together."""
    usual = problem.stored_types()
    others = {n: [k for k in problem.plan.elements_of(n) if k != usual[n]] for n in usual}
    for name, kinds in others.items():
        for kind in kinds:
            yield {name: kind}
    if any(others.values()):
        yield {name: kinds[-1] for name, kinds in others.items() if kinds}


def _compared(
    problem: Problem,
    arrays: Arrays,
    exact: Mapping[str, Any],
    outputs: Arrays,
    types: Mapping[str, ElementKind],
    saved_exact: Mapping[str, Any] | None = None,
) -> dict[str, Accuracy]:
    with np.errstate(over="ignore"):  # infinity and the numbers near it
        allowed = tolerances(problem, arrays, exact, types, saved=saved_exact)
    wide = {a: problem.flat(a, as_float(outputs[a])) for a in problem.results}
    return {a: compare(wide[a], exact[n], allowed[a], types[a]) for a, n in problem.results.items()}


def check_layouts(problem: Problem, memory: Memory) -> None:
    """Strides, alignment, workspace and repetition change no bit where the spec guarantees that for the same kernel.

    Other results stay close. Tensors have different patterns, so that no tensor's offsets fit another.
    """
    arrays, _ = with_saved(problem, problem.draw(seed=1), problem.stored_types(), problem.draw_hidden(seed=1))
    base = arrange(problem, arrays, memory).run()
    again = arrange(problem, arrays, memory, shift_workspace=16).run()
    promised = {n for n, rungs in problem.plan.PROMISES.items() if "bit_stable_on_same_hardware" in rungs}
    _require_same(problem, base, again, promised, "a second run")
    for turn, patterns in enumerate(_layouts(problem)):
        arranged = arrange(problem, arrays, memory, patterns=patterns, shift_workspace=16 * (turn % 3))
        arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
        serving = problem.plan.can_implement(**arguments, workspace=arranged.workspace).sku
        same = promised if serving == problem.plan.sku else set()
        _require_same(problem, base, arranged.run(), same, f"layouts {patterns}")


def _layouts(problem: Problem) -> Iterator[dict[str, str]]:
    names, kinds = list(problem.arguments), list(PATTERNS)
    for kind in kinds[1:]:
        yield dict.fromkeys(names, kind)
    for turn in range(len(kinds)):
        yield dict(zip(names, islice(cycle(kinds), turn, None), strict=False))


def check_lone_layouts(problem: Problem, memory: Memory) -> None:
    """One tensor off the alignment of the others, of odd pitch, or with a gap along its first axis only.

    A kernel that asks another tensor, or another stride, whether vectors may load and store is wrong there.
    """
    arrays, _ = with_saved(problem, problem.draw(seed=12), problem.stored_types(), problem.draw_hidden(seed=12))
    base = arrange(problem, arrays, memory).run()
    promised = {n for n, rungs in problem.plan.PROMISES.items() if "bit_stable_on_same_hardware" in rungs}
    for name in problem.arguments:
        for pattern in LONE:
            arranged = arrange(problem, arrays, memory, patterns={name: pattern})
            view, usual = arranged.placed[name].view, contiguous_strides(problem.shape_of(name))
            if pattern != "shifted" and tuple(view.strides) == tuple(usual):
                continue
            arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
            serving = problem.plan.can_implement(**arguments, workspace=arranged.workspace).sku
            same = promised if serving == problem.plan.sku else set()
            _require_same(problem, base, arranged.run(), same, f"{name!r} alone {pattern}")


def check_broadcast(problem: Problem, memory: Memory) -> None:
    """An input of stride 0 along its first or last axis gives the same as the numbers written out."""
    arrays, _ = with_saved(problem, problem.draw(seed=2), problem.stored_types(), problem.draw_hidden(seed=2))
    read_only = [n for n, a in problem.plan.ARGUMENTS.items() if not a.written]
    free = [n for n in read_only if n in arrays and problem.arguments[n].layout != "contiguous"]
    promised = {n for n, rungs in problem.plan.PROMISES.items() if "bit_stable_on_same_hardware" in rungs}
    for name, axis in [(given, axis) for given in free for axis in _broadcast_axes(problem, given)]:
        array = arrays[name]
        one = np.ascontiguousarray(array.take([0], axis))
        repeated = {**arrays, name: np.ascontiguousarray(np.broadcast_to(one, array.shape))}
        base = arrange(problem, repeated, memory).run()
        arranged = arrange(problem, {**arrays, name: one}, memory)
        placed = arranged.placed[name]
        strides = [0 if other == axis else stride for other, stride in enumerate(placed.view.strides)]
        placed.view = placed.view._replace(shape=array.shape, strides=tuple(strides))
        arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
        serving = problem.plan.can_implement(**arguments, workspace=arranged.workspace).sku
        same = promised if axis == 0 or serving == problem.plan.sku else set()
        _require_same(problem, base, arranged.run(), same, f"stride 0 along axis {axis} of {name!r}")


def _broadcast_axes(problem: Problem, name: str) -> list[int]:
    """The first and the last axis, as far as they have several elements and a stride of their own."""
    shape = problem.shape_of(name)
    axes = [0] if problem.layout or problem.arguments[name].layout == "inner" else [0, len(shape) - 1]
    return [axis for axis in dict.fromkeys(axes) if len(shape) > 1 and shape[axis] > 1]


FAR = 2**31 + 8  # elements between rows: beyond 32 bits
_BOTH = (3 << 29, 1 << 30)  # elements along two axes, which only together are beyond 31 bits


def check_huge_strides(problem: Problem, memory: Memory) -> None:
    """Parts more than 2^31 elements apart, along one axis of extent 2 or along two, give the bits of adjacent ones."""
    arrays, _ = with_saved(problem, problem.draw(seed=9), problem.stored_types(), problem.draw_hidden(seed=9))
    base = arrange(problem, arrays, memory).run()
    for name in problem.arguments:
        for steps in _far_steps(problem, name):
            arranged = arrange(problem, arrays, memory)
            far = _Far(arranged.placed[name], steps, memory)
            arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments | {name: far.view}
            problem.plan.run(**arguments, workspace=arranged.workspace)
            memory.finish()
            outputs = {n: far.values() if n == name else arranged.placed[n].values() for n in problem.written}
            _require_same(problem, base, outputs, set(base), f"strides of {steps} elements by axis of {name!r}")


def _far_steps(problem: Problem, name: str) -> list[dict[int, int]]:
    """Strides by axis of extent 2, where they are free; outside of the row family for the first one and two."""
    shape, layout = problem.shape_of(name), problem.arguments[name].layout
    if problem.layout or layout == "contiguous" or (isinstance(problem, RowProblem) and shape != problem.shape):
        return []
    free = shape[:-1] if layout == "inner" else shape
    axes = [axis for axis, extent in enumerate(free) if extent == 2]
    alone = [{axis: FAR} for axis in (axes if isinstance(problem, RowProblem) else axes[:1])]
    return alone + [dict(zip(axes, _BOTH, strict=False))] * (len(axes) > 1)


class _Far:
    """A placed tensor moved to memory where the halves of some axes lie as far apart as `steps` says, in elements."""

    def __init__(self, placed: Placed, steps: Mapping[int, int], memory: Memory) -> None:
        shape, self.itemsize, self.like = placed.view.shape, placed.view.element.row.bytes, placed.values()
        self.parts = {}  # by offset: the index of a part
        for halves in product((0, 1), repeat=len(steps)):
            of_axis = {axis: slice(half, half + 1) for axis, half in zip(steps, halves, strict=True)}
            offset = sum(half * step for half, step in zip(halves, steps.values(), strict=True))
            self.parts[offset] = tuple(of_axis.get(axis, slice(None)) for axis in range(len(shape)))
        self.vast = memory.vast(max(self.parts) * self.itemsize + self.like.nbytes)
        for offset, index in self.parts.items():
            part = np.ascontiguousarray(self.like[index])
            self.vast.write(offset * self.itemsize, part.reshape(-1).view(np.uint8))
        inner = contiguous_strides(tuple(1 if axis in steps else extent for axis, extent in enumerate(shape)))
        strides = tuple(steps.get(axis, stride) for axis, stride in enumerate(inner))
        self.view = placed.view._replace(pointer=self.vast.pointer, strides=strides, owner=self.vast)

    def values(self) -> np.ndarray[Any, Any]:
        values = np.empty_like(self.like)
        for offset, index in self.parts.items():
            read = self.vast.read(offset * self.itemsize, values[index].nbytes)
            values[index] = read.view(values.dtype).reshape(values[index].shape)
        return values


def check_in_place(problem: Problem, memory: Memory) -> None:
    """An output may take over the memory of each input that its spec says it may alias."""
    if not any(problem.plan.ARGUMENTS[name].may_alias for name in problem.written):
        return
    arrays, _ = with_saved(problem, problem.draw(seed=6), problem.stored_types(), problem.draw_hidden(seed=6))
    base = arrange(problem, arrays, memory).run()
    for name in problem.written:
        for other in problem.plan.ARGUMENTS[name].may_alias:
            arranged = arrange(problem, arrays, memory)
            arranged.placed[name] = arranged.placed[other]
            arranged.placed.pop(other)
            arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
            problem.plan.run(**{**arguments, other: arranged.placed[name].view}, workspace=arranged.workspace)
            memory.finish()
            outputs = {n: arranged.placed[n].values() for n in problem.written}
            _require_same(problem, base, outputs, set(base), f"{name!r} in place of {other!r}")


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
    before = device.order, device.seed, device.workers, device.blocks, device.multiprocessors
    try:
        for order in _ORDERS:
            device.order, device.seed, device.workers, device.blocks = order
            outputs = arrange(problem, arrays, memory).run()
            _require_same(problem, base, outputs, _promised(problem, "deterministic"), f"order {order}")
        device.order, device.seed, device.workers, device.blocks, _ = before
        for device.multiprocessors in _MULTIPROCESSORS:
            outputs = arrange(problem, arrays, memory).run(anew(problem).plan)
            change = f"{device.multiprocessors} multiprocessors"
            _require_same(problem, base, outputs, _promised(problem, "bit_stable_across_arch"), change)
    finally:
        device.order, device.seed, device.workers, device.blocks, device.multiprocessors = before


def check_architectures(problem: Problem, archs: Collection[str], memory: Memory) -> None:
    """A kernel that promises its bits everywhere has those of the kernel that each other architecture selects."""
    promised, rungs = _promised(problem, "bit_stable_across_arch"), frozenset({"bit_stable_across_arch"})
    arrays, _ = with_saved(problem, problem.draw(seed=12), problem.stored_types(), problem.draw_hidden(seed=12))
    base = arrange(problem, arrays, memory).run()
    for arch in archs:
        other, preference = copy(problem), PlanPreference(rungs=rungs, archs=frozenset({arch}))
        try:
            other.plan = type(problem.plan).select(problem.descriptor, preference)
        except Unsupported:
            continue
        outputs = arrange(other, arrays, memory).run()
        _require_same(problem, base, outputs, promised, f"{other.plan.sku.symbol}, which {arch} selects")


def _require_moved(problem: Problem, arrays: Arrays, outputs: Arrays) -> None:
    """Outputs that are said to be moved hold nothing but values of inputs of their type, and 0."""
    for argument, name in problem.results.items():
        if getattr(problem.spec.outputs[name], "moved", False):
            alike = [a.reshape(-1) for a in arrays.values() if a.dtype == outputs[argument].dtype]
            strange = ~np.isin(outputs[argument], np.concatenate([*alike, np.zeros(1, outputs[argument].dtype)]))
            if strange.any():
                value = outputs[argument][strange][0]
                raise AssertionError(f"{_of(problem)}: {argument!r} is to be moved, but {value} is in no input")


def _promised(problem: Problem, rung: str) -> set[str]:
    """The written arguments whose outputs have a promise."""
    names = {name for name, rungs in problem.plan.PROMISES.items() if rung in rungs}
    return {argument for argument, name in problem.results.items() if names & {argument, name}}


_BATCHES = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33)


def check_batch_invariance(problem: Problem, memory: Memory) -> None:
    """Rows and samples have the same bits in half of a batch, whichever kernel serves that."""
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
    return [name for name, rungs in problem.plan.PROMISES.items() if "batch_invariant" in rungs]


def _require_same_rows(whole: Problem, part: Problem, promised: list[str], memory: Memory) -> None:
    """The part of a batch has the bits that it has in the whole."""
    arrays, _ = with_saved(whole, whole.draw(seed=7), whole.stored_types(), whole.draw_hidden(seed=7))
    base = arrange(whole, arrays, memory).run()
    cut = {n: _first(a, part.shape_of(n)) for n, a in arrays.items()}
    outputs = arrange(part, cut, memory).run()
    for name in promised:
        if name in outputs and not same_bits(_first(base[name], part.shape_of(name)), outputs[name]):
            kernel = "" if part.plan.sku == whole.plan.sku else f", which {part.plan.sku.symbol} serves"
            raise AssertionError(f"{_of(whole)}: {name!r} has other bits in a batch of {part.batch}{kernel}")


def check_asynchrony(problem: Problem, memory: HostMemory) -> None:
    """Results are right and have the same bits whenever TMA and wgmma do their work, in whatever order threads run.

    First on one multiprocessor, so that blocks which stay take several turns; then in blocks that take turns.
    """
    types = problem.stored_types()
    arrays, exact = with_saved(problem, problem.draw(seed=3), types, problem.draw_hidden(seed=3))
    with memory.multiprocessors(1):
        late = _late_and(problem, arrays, memory, problem.plan, "early", "reverse", "in order")
        if wrong := wrong_in(_compared(problem, arrays, exact, late, types)):
            raise AssertionError(f"{_of(problem)}, on one multiprocessor: {wrong}")
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
            raise AssertionError(f"{_of(problem)}: {name!r} has other bits with {said}")
    return late


def _first(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array[tuple(slice(n) for n in shape)])


def check_agreement(problem: Problem, memory: Memory, other: Memory, seed: int = 0) -> None:
    """Two devices agree on numbers of a random style in random layouts.

    Outputs promised to be `bit_stable_across_arch` have the same bits; of the others each is within its bound.
    """
    rng = np.random.default_rng([seed, problem.size])
    style = str(rng.choice(problem.STYLES))
    patterns = {n: str(rng.choice(list(PATTERNS))) for n in problem.arguments}
    types = problem.stored_types()
    arrays, exact = with_saved(problem, problem.draw(style, seed), types, problem.draw_hidden(style, seed))
    first, second = (arrange(problem, arrays, m, patterns=patterns).run() for m in (memory, other))
    promised = {n for n, rungs in problem.plan.PROMISES.items() if "bit_stable_across_arch" in rungs}
    comparable = {n: a for n, a in first.items() if n in promised}
    _require_same(problem, comparable, second, promised, f"{other.name} instead of {memory.name}")
    for device, outputs in ((memory.name, first), (other.name, second)) if comparable.keys() != first.keys() else ():
        for name, accuracy in _compared(problem, arrays, exact, outputs, types).items():
            if accuracy.worst_ratio > 1:
                raise AssertionError(f"{_of(problem)}, {style} inputs on {device}: {name!r} is wrong, {accuracy}")


SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)


def check_special_values(problem: Problem, memory: Memory) -> None:
    """NaN, infinities, signed zeros and subnormals give what the formula gives, and change no other row.

    Enormous numbers do, too, but in gradients, where they overflow; and rows of zeros.
    """
    if isinstance(problem, RowProblem):
        _check_special_rows(problem, memory)
        check_problem(problem, memory, style="sparse", variant="rows of zeros")
    else:
        _check_special_elements(problem, memory)
    if problem.spec.gradient is None:
        check_problem(problem, memory, style="enormous", variant="enormous inputs")


def _check_special_elements(problem: Problem, memory: Memory) -> None:
    for name in (n for n in problem.arguments if n in problem.spec.inputs and n not in problem.saved):
        drawn = problem.draw(seed=8)
        if not problem.stored_types()[name].row.unit_roundoff or drawn[name].dtype.kind == "c" or not drawn[name].size:
            continue
        clean, usual = with_saved(problem, drawn, problem.stored_types(), problem.draw_hidden(seed=8))
        calm = tolerances(problem, clean, usual, problem.stored_types())
        for turn, value in enumerate(SPECIAL if problem.size <= LARGE else SPECIAL[:2]):
            if np.isinf(value) and _finite_only(problem, name):
                continue
            place = (7 * turn + 1) % drawn[name].size
            arrays = _with(drawn, name, place, value)
            full, exact = with_saved(problem, arrays, problem.stored_types(), problem.draw_hidden(seed=8))
            outputs = arrange(problem, full, memory).run()
            allowed = tolerances(problem, full, exact, problem.stored_types())
            for argument, result in problem.results.items():
                got = problem.flat(argument, as_float(outputs[argument]))
                expected = np.asarray(exact[result], np.float64)
                if np.isnan(value) and _skips_zeros(problem):
                    # Which outputs 0 times NaN reaches is up to the definition, but NaN must not vanish.
                    if (
                        np.isnan(expected).any()
                        and not np.isnan(got).any()
                        and _matters(problem, drawn, name, place, result)
                    ):
                        raise AssertionError(f"{_of(problem)}, {value} in {name!r}: {argument!r} loses it")
                    expected = np.where(np.isnan(got) | np.isnan(expected), got, expected)
                if np.isinf(value) and _skips_zeros(problem):  # its weight may underflow to 0 in a half type
                    expected = np.where(np.isnan(got) & np.isinf(expected), got, expected)
                    if problem.spec.gradient is not None:  # 0 times infinity, or infinity less infinity, as for NaN
                        expected = np.where(np.isnan(got) | np.isnan(expected), got, expected)
                bound = np.where(np.isfinite(allowed[argument]), allowed[argument], calm[argument])
                accuracy = compare(got, expected, bound, problem.stored_types()[argument])
                if not accuracy.worst_ratio <= 1:
                    raise AssertionError(f"{_of(problem)}, {value} in {name!r}: {argument!r} is wrong, {accuracy}")


def _with(arrays: Arrays, name: str, place: int, value: float) -> Arrays:
    """`arrays`, one element of one of them changed."""
    changed = {**arrays, name: arrays[name].copy()}
    changed[name].flat[place] = value
    return changed


def _matters(problem: Problem, arrays: Arrays, name: str, place: int, result: str) -> bool:
    """Whether a result depends on an element, which a mask may hide."""
    other = _with(arrays, name, place, 2 * float(arrays[name].flat[place]) + 1)
    types, hidden = problem.stored_types(), problem.draw_hidden(seed=8)
    before, after = (with_saved(problem, a, types, hidden)[1][result] for a in (arrays, other))
    return not np.array_equal(before, after, equal_nan=True)


def _skips_zeros(problem: Problem) -> bool:
    """Whether 0 times NaN may be 0: in gradients of hand-written kernels, and by some definitions."""
    if not isinstance(problem, BodyProblem):
        return False
    return problem.spec.gradient is not None or definition(problem.spec.oracle).skips_zeros


def _finite_only(problem: Problem, name: str) -> bool:
    """Whether an input must be finite: by the spec, or in a gradient unless it is linear in it."""
    gradient = problem.spec.gradient
    return (gradient is not None and name not in gradient.cotangents) or problem.element in problem.spec.tests.finite


def _check_special_rows(problem: RowProblem, memory: Memory) -> None:
    inputs = [n for n in problem.arguments if n in problem.spec.inputs]
    floats = [n for n in inputs if problem.stored_types()[n].row.unit_roundoff]  # integers have no special values
    clean, _ = with_saved(problem, problem.draw(seed=8), problem.stored_types(), problem.draw_hidden(seed=8))
    base = arrange(problem, clean, memory).run()
    subnormal = problem.element.row.smallest_normal / 4
    for name in floats:
        of_rows = problem.row_dim in problem.spec.tensors[name].dims
        for turn, value in enumerate((*SPECIAL, subnormal)):
            arrays = dict(clean)
            flat = np.array(problem.flat(name, arrays[name]))
            if not flat.size:
                return
            row = turn % problem.rows if of_rows else 0
            flat[row, (7 * turn) % flat.shape[1]] = value
            arrays[name] = np.ascontiguousarray(problem.caller(name, flat, arrays[name].shape))
            outputs = arrange(problem, arrays, memory).run()
            exact = _with_overflow(problem, arrays)
            _require_kinds(problem, arrays, outputs, exact, f"{value} in {name!r}")
            if of_rows:
                _require_others_untouched(problem, base, outputs, row, f"{value} in {name!r}")


def _with_overflow(problem: Problem, arrays: Arrays) -> dict[str, Any]:
    """What the formula gives, overflowing where the accumulator does."""
    exact = explicit(problem, widen(problem, arrays)) or {}
    narrow = explicit(problem, widen(problem, arrays, problem.element.row.acc.row.numpy)) or {}
    return {n: np.where(np.isfinite(narrow[n]), exact[n], narrow[n]) for n in problem.results.values()}


def _require_kinds(problem: Problem, arrays: Arrays, outputs: Arrays, exact: Mapping[str, Any], change: str) -> None:
    for name, accuracy in _compared(problem, arrays, exact, outputs, problem.stored_types(), {}).items():
        if not np.isfinite(accuracy.worst_ratio) or accuracy.worst_ratio > 1:
            raise AssertionError(f"{_of(problem)}, {change}: {name!r} is not what the formula gives, {accuracy}")


def _require_others_untouched(problem: RowProblem, base: Arrays, outputs: Arrays, row: int, change: str) -> None:
    for name, output in outputs.items():
        if problem.row_dim not in problem.spec.tensors[name].dims:
            continue
        others = np.delete(np.arange(problem.rows), row)
        if not same_bits(problem.flat(name, base[name])[others], problem.flat(name, output)[others]):
            raise AssertionError(f"{_of(problem)}, {change}: rows of {name!r} beside row {row} changed")


def _require_same(problem: Problem, base: Arrays, other: Arrays, promised: set[str], change: str) -> None:
    for name, expected in base.items():
        if name in promised and not same_bits(expected, other[name]):
            raise AssertionError(f"{_of(problem)}: {name!r} has other bits with {change}")
        if name not in promised:
            _require_near(problem, expected, other[name], f"{name!r} with {change}")


def _require_near(problem: Problem, expected: np.ndarray[Any, Any], other: np.ndarray[Any, Any], label: str) -> None:
    """Where bits are not guaranteed, values must be close."""
    a, b = as_float(expected), as_float(other)
    scale = np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
    np.testing.assert_allclose(b, a, rtol=1e-2, atol=1e-2 * float(scale), err_msg=f"{_of(problem)}: {label}")


def _listed(choice: Choice) -> str:
    return ", ".join(f"{name} in {kind}" for name, kind in choice.items())


def _of(problem: Problem) -> str:
    return f"{problem.plan.sku.symbol} on {problem.descriptor}"
