"""Checks of NaN, infinities, zeros, subnormal and enormous numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from baracuda.codegen.spec.backward import is_derivable

from ..oracles.accuracy import as_float, compare, numbers_of, of_parts
from ..oracles.oracle import explicit, tolerances, widen, with_saved
from ..oracles.references import definition_of
from ..problems.problem import Arrays, Problem, ProgramProblem
from ..trials.arrange import arrange, same_bits
from ..trials.memory import Memory
from ..trials.trial import wrong_in
from .agreement import compared, label_of
from .checks import LARGE, check_problem, drawn, within

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)


def check_special_values(problem: Problem, memory: Memory) -> None:
    """NaN, infinities, signed zeros and subnormals give what the formula gives, and change no other row.

    Enormous numbers do, too, but in gradients, where they overflow; so do rows of zeros, and the extremes of whole
    numbers.
    """
    if problem.rows_apart:
        _check_special_rows(problem, memory)
        check_problem(problem, memory, style="sparse", variant="rows of zeros")
    else:
        _check_special_elements(problem, memory)
    if problem.spec.gradient is None:
        _check_enormous(problem, memory)
    if any(kind.value[0] in "iu" and name in problem.spec.inputs for name, kind in problem.stored_types().items()):
        check_problem(problem, memory, style="extremes", variant="the extreme whole numbers")


def check_ties(problem: Problem, memory: Memory) -> None:
    """Programs that find an extreme's place find the first of equal numbers, zeros and NaNs, whatever their sign."""
    if isinstance(problem, ProgramProblem) and re.search(r"\barg(max|min)\(", problem.spec.program):
        check_problem(problem, memory, style="ties", variant="equal zeros and NaNs")
        check_problem(problem, memory, style="lowest", variant="nothing but the lowest")
        check_problem(problem, memory, style="highest", variant="nothing but the highest")


def check_long_reduction(problem: Problem, memory: Memory) -> None:
    """The same where a thread reduces many terms."""
    if not problem.rows_apart:
        _check_special_elements(problem, memory)
    check_ties(problem, memory)


def check_far_places(problem: Problem, memory: Memory) -> None:
    """Places that lie far from all that there are do not exist, whatever their lower 32 bits say."""
    if any(problem.may_be_far(name, kind) for name, kind in problem.stored_types().items()):
        check_problem(problem, memory, style="far", variant="places beyond 32 bits")


def _check_special_elements(problem: Problem, memory: Memory) -> None:
    for name in (n for n in problem.arguments if n in problem.spec.inputs and n not in problem.saved):
        drawn = problem.draw(seed=8)
        if not problem.stored_types()[name].row.unit_roundoff or not drawn[name].size:
            continue
        clean, usual = with_saved(problem, drawn, problem.stored_types(), problem.draw_hidden(seed=8))
        calm = tolerances(problem, clean, usual, problem.stored_types())
        for turn, value in enumerate(SPECIAL if problem.size <= LARGE else SPECIAL[:2]):
            if np.isinf(value) and _finite_only(problem, name):
                continue
            place = (7 * turn + 1) % numbers_of(drawn[name]).size
            arrays = _with(drawn, name, place, value)
            full, exact = with_saved(problem, arrays, problem.stored_types(), problem.draw_hidden(seed=8))
            outputs = arrange(problem, full, memory).run()
            allowed = tolerances(problem, full, exact, problem.stored_types())
            for argument, result in problem.results.items():
                got = problem.flat(argument, as_float(outputs[argument]))
                expected = as_float(np.asarray(exact[result]))
                if np.isnan(value) and _skips_zeros(problem):
                    # Which outputs 0 times NaN reaches is up to the definition, but NaN must not vanish.
                    if (
                        np.isnan(expected).any()
                        and not np.isnan(got).any()
                        and _matters(problem, drawn, name, place, result)
                    ):
                        raise AssertionError(f"{label_of(problem)}, {value} in {name!r}: {argument!r} loses it")
                    expected = np.where(np.isnan(got) | np.isnan(expected), got, expected)
                if np.isinf(value) and _skips_zeros(problem):  # its weight may underflow to 0 in a half type
                    expected = np.where(np.isnan(got) & np.isinf(expected), got, expected)
                    if problem.spec.gradient is not None:  # 0 times infinity, or infinity less infinity, as for NaN
                        expected = np.where(np.isnan(got) | np.isnan(expected), got, expected)
                one = problem.stored_types()[argument].row.unit_roundoff  # of what may be another value than without
                fallback = of_parts(lambda calm, y, one=one: calm + one * np.abs(y), calm[argument], expected)
                bound = of_parts(lambda a, b: np.where(np.isfinite(a), a, b), allowed[argument], fallback)
                accuracy = compare(got, expected, bound, problem.stored_types()[argument])
                if not accuracy.worst_ratio <= 1:
                    raise AssertionError(f"{label_of(problem)}, {value} in {name!r}: {argument!r} is wrong, {accuracy}")


def _check_enormous(problem: Problem, memory: Memory) -> None:
    """Outputs are the exact ones, or those of the formula in the accumulator's type where it overflows on the way."""
    case = drawn(problem, "enormous")
    if not problem.spec.by_hand and wrong_in(case.measure(memory)):
        narrow = _in_accumulator(problem, case.inputs)
        exact, allowed = dict(case.exact), dict(case.allowed)
        for name, result in problem.results.items():
            numbers = narrow[result], exact[name], allowed[name]
            exact[name] = of_parts(lambda n, y, a: np.where(np.abs(n - y) <= a, y, n), *numbers)
            allowed[name] = of_parts(partial(_of_narrow, problem.element.row.acc.row.unit_roundoff), *numbers)
        case = replace(case, exact=exact, allowed=allowed)
    within(case, memory, "enormous inputs")


def _of_narrow(unit_roundoff: float, narrow: Any, exact: Any, allowed: Any) -> Any:
    """The bound on errors, or the rounding of numbers that are right only in the accumulator's type."""
    rounding = 8 * unit_roundoff * np.abs(narrow)
    return np.where(~(np.abs(narrow - exact) <= allowed) & np.isfinite(rounding), rounding, allowed)


def _with(arrays: Arrays, name: str, place: int, value: float) -> Arrays:
    """`arrays`, one number of one of them changed."""
    changed = {**arrays, name: arrays[name].copy()}
    numbers_of(changed[name])[place] = value
    return changed


def _matters(problem: Problem, arrays: Arrays, name: str, place: int, result: str) -> bool:
    """Whether a result depends on an element, which a mask may hide."""
    other = _with(arrays, name, place, 2 * float(numbers_of(arrays[name])[place]) + 1)
    types, hidden = problem.stored_types(), problem.draw_hidden(seed=8)
    before, after = (with_saved(problem, a, types, hidden)[1][result] for a in (arrays, other))
    return not np.array_equal(before, after, equal_nan=True)


def _skips_zeros(problem: Problem) -> bool:
    """Whether 0 times NaN may be 0: in gradients by hand that could not be derived, and by some definitions."""
    if isinstance(problem, ProgramProblem):
        return problem.spec.gradient is not None and not is_derivable(problem.forward, problem.spec.gradient)
    return problem.spec.gradient is not None or definition_of(problem.spec).skips_zeros


def _finite_only(problem: Problem, name: str) -> bool:
    """Whether an input must be finite: by the spec, or in a gradient unless it is linear in it."""
    gradient = problem.spec.gradient
    return (gradient is not None and name not in gradient.cotangents) or problem.element in problem.spec.tests.finite


def _check_special_rows(problem: Any, memory: Memory) -> None:
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
    narrow = _in_accumulator(problem, arrays)
    return {n: np.where(np.isfinite(narrow[n]), exact[n], narrow[n]) for n in problem.results.values()}


def _in_accumulator(problem: Problem, arrays: Arrays) -> Mapping[str, Any]:
    """What the formula gives when it is computed in the accumulator's type."""
    return explicit(problem, widen(problem, arrays, problem.element.row.acc.row.numpy)) or {}


def _require_kinds(problem: Problem, arrays: Arrays, outputs: Arrays, exact: Mapping[str, Any], change: str) -> None:
    for name, accuracy in compared(problem, arrays, exact, outputs, problem.stored_types(), {}).items():
        if not np.isfinite(accuracy.worst_ratio) or accuracy.worst_ratio > 1:
            raise AssertionError(f"{label_of(problem)}, {change}: {name!r} is not what the formula gives, {accuracy}")


def _require_others_untouched(problem: Any, base: Arrays, outputs: Arrays, row: int, change: str) -> None:
    for name, output in outputs.items():
        if problem.row_dim not in problem.spec.tensors[name].dims:
            continue
        others = np.delete(np.arange(problem.rows), row)
        if not same_bits(problem.flat(name, base[name])[others], problem.flat(name, output)[others]):
            raise AssertionError(f"{label_of(problem)}, {change}: rows of {name!r} beside row {row} changed")
