"""Checks of accuracy: they run kernels and raise AssertionError where errors are beyond the declared bound."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from baracuda.runtime import ElementKind, KernelInternal

from ..oracles.accuracy import Accuracy, as_float, parts
from ..oracles.oracle import explicit, tolerances, widen, with_saved
from ..oracles.wide import as_wide
from ..problems.problem import Arrays, Problem, ProgramProblem
from ..problems.shrunken import MULTIPROCESSORS
from ..problems.sums import ORDERS, in_thirds
from ..repro.bundle import offer
from ..trials.arrange import Choice, arrange
from ..trials.memory import PATTERNS, HostMemory, Memory
from ..trials.trial import Trial, message_of, trial, wrong_in
from .agreement import compared, label_of, require_same

LOOSEST = 0.05  # fraction of the bound that a SKU's worst error must reach, so that the bound can fail
LARGE = 1 << 17  # elements; on the host device larger problems are drawn in one style, the one with the largest errors


def check_accuracy(problems: list[Problem], memory: Memory, *, tight: bool = True) -> None:
    """Errors against the oracle are within the declared bound on every problem and style.

    Integer outputs must be equal. With `tight`, warns of a bound of which the worst error does not reach LOOSEST.
    """
    if not problems:
        raise AssertionError("no test problem selects this kernel; add a case")
    worst: dict[str, Accuracy] = {}
    for problem in problems:
        for style in _styles(problem, memory):
            for name, accuracy in within(drawn(problem, style), memory, f"{style} inputs").items():
                if name not in worst or accuracy.worst_ratio > worst[name].worst_ratio:
                    worst[name] = accuracy
    for name, accuracy in worst.items() if tight else ():
        if 0 < accuracy.worst_ratio < LOOSEST:
            reached = f"the worst error is {accuracy.worst_ratio:.3f} of it"
            output, kind = problems[0].results[name], problems[0].element
            advice = f"nothing is wrong, but a smaller outputs.{output}.bound.{kind}.c2 would catch smaller defects"
            warnings.warn(f"the bound of {name!r} is loose: {reached}; {advice}", stacklevel=1)


def _styles(problem: Problem, memory: Memory) -> tuple[str, ...]:
    alone = problem.size > LARGE and memory.name == "host" and "spread" in problem.STYLES
    return ("spread",) if alone else problem.STYLES


def measured(problem: Problem, memory: Memory, style: str) -> dict[str, Accuracy]:
    """Run once on inputs of a style of `STYLES` and compare each output with the oracle."""
    return drawn(problem, style).measure(memory)


def drawn(problem: Problem, style: str, given: Arrays | None = None) -> Trial:
    """Inputs of a style of `STYLES`, but for those `given`, with expected outputs and bounds."""
    types = problem.stored_types()
    arrays, exact = with_saved(problem, {**problem.draw(style), **(given or {})}, types, problem.draw_hidden(style))
    return trial(problem, arrays, exact, tolerances(problem, arrays, exact, types))


def within(case: Trial, memory: Memory, variant: str) -> dict[str, Accuracy]:
    """Measure a trial; a failure may be saved for `repro`."""
    label = f"{label_of(case.problem)}, {variant}"
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
    given: Arrays | None = None,
) -> None:
    """Errors against the oracle are within the declared bound, for arrays in the given layouts."""
    case = replace(drawn(problem, style, given), patterns=patterns or {})
    within(case, memory, f"arrays {sorted({*case.patterns.values()})}" if patterns else variant)


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
    within(trial(problem, arrays, exact, bound), memory, "arbitrary saved values")


def check_stored_types(problem: Problem, memory: Memory) -> None:
    """Results are within the bound for every choice of element types that the spec allows."""
    for choice in choices_of(problem):
        types = problem.stored_types(choice)
        arrays, exact = with_saved(problem, problem.draw(seed=5, choice=choice), types, problem.draw_hidden(seed=5))
        bound = tolerances(problem, arrays, exact, types)
        within(trial(problem, arrays, exact, bound, choice), memory, _listed(choice))


def check_compensation(problems: Iterable[ProgramProblem], memory: Memory) -> ProgramProblem | None:
    """A sum does not lose a small number that a huge one is added to, or that is added to it, and that then cancels.

    On the first problem in which it does: the sum is exact but for the rounding of its output; what is computed of
    elements, too, is within the bound of the small numbers alone. Returns the problem.
    """
    for problem in problems:
        arrays, _ = with_saved(problem, problem.draw(), problem.stored_types(), problem.draw_hidden())
        cancelling = [found for order in ORDERS if (found := _cancelling(problem, arrays, order))]
        for inputs, exact, small in cancelling:
            outputs, types = arrange(problem, inputs, memory).run(), problem.stored_types()
            bounds = tolerances(problem, small, {}, types, saved={})
            for argument, wanted in exact.items():
                got, bound = problem.flat(argument, as_float(outputs[argument])), bounds[argument]
                if np.iscomplexobj(got):
                    got, wanted, bound = map(parts, (got, wanted, bound))
                # In f64 what is wanted is rounded, too.
                bounded = problem.results[argument] in problem.of_elements or types[argument].row.acc == ElementKind.F64
                row = types[argument].row
                one = row.unit_roundoff * np.maximum(np.abs(wanted), row.smallest_normal)
                if np.any(np.abs(got - wanted) > (np.maximum(one, bound) if bounded else one)):
                    at = int(np.argmax(np.abs(got - wanted)))
                    lost = f"{argument!r} is {got.flat[at]:.17g}, needs {wanted.flat[at]:.17g}"
                    raise AssertionError(f"{label_of(problem)}, a small number and huge ones that cancel: {lost}")
        if cancelling:
            return problem
    return None


def _cancelling(problem: ProgramProblem, arrays: Arrays, order: Sequence[str]) -> tuple[Arrays, Arrays, Arrays] | None:
    """Inputs in thirds, sums by argument, if these are what the small numbers alone give, and these numbers."""
    inputs, small = in_thirds(problem, arrays, order), [name if name == "small" else "" for name in order]
    small_alone = in_thirds(problem, arrays, small)
    exact = explicit(problem, widen(problem, inputs)) or {}
    alone = explicit(problem, widen(problem, small_alone)) or {}
    sums = {argument: name for argument, name in problem.results.items() if argument in problem.plan.SUM_OUTPUTS}
    if not sums or any(not np.any(alone[name]) or np.any(exact[name] != alone[name]) for name in sums.values()):
        return None
    kind = np.dtype(np.float64)
    return inputs, {argument: as_wide(np.asarray(exact[name]), kind) for argument, name in sums.items()}, small_alone


def choices_of(problem: Problem) -> Iterator[dict[str, ElementKind]]:
    """Each tensor of chosen type with each of its other types, then all together."""
    usual = problem.stored_types()
    others = {n: [k for k in problem.plan.elements_of(n) if k != usual[n]] for n in usual}
    for name, kinds in others.items():
        for kind in kinds:
            yield {name: kind}
    if any(others.values()):
        yield {name: kinds[-1] for name, kinds in others.items() if kinds}


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
    promised = {n for n, rungs in problem.plan.promises.items() if "bit_stable_across_arch" in rungs}
    comparable = {n: a for n, a in first.items() if n in promised}
    require_same(problem, comparable, second, promised, f"{other.name} instead of {memory.name}")
    for device, outputs in ((memory.name, first), (other.name, second)) if comparable.keys() != first.keys() else ():
        for name, accuracy in compared(problem, arrays, exact, outputs, types).items():
            if accuracy.worst_ratio > 1:
                raise AssertionError(f"{label_of(problem)}, {style} inputs on {device}: {name!r} is wrong, {accuracy}")


def _listed(choice: Choice) -> str:
    return ", ".join(f"{name} in {kind}" for name, kind in choice.items())
