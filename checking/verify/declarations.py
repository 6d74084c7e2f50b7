"""Declarations of plans, compared with the spec."""

from __future__ import annotations

from functools import partial
from typing import Any

from baracuda.runtime import Argument, Unsupported

from ..oracles.oracle import with_saved
from ..problems.problem import Problem
from ..problems.subject import Subject
from ..trials.arrange import arrange, same_bits
from ..trials.memory import Memory
from .refusals import stranger


def check_declarations(subject: Subject) -> None:
    """Arguments, their order, promises and element types are those of the spec."""
    spec, plan = subject.spec, subject.plan
    due: dict[str, Any] = {
        "ARGUMENTS": {name: _argument(subject, name) for name in spec.arguments},
        "CHECK_ORDER": spec.check_order or tuple(spec.arguments),
        "PROMISES": {name: tuple(rungs) for name, rungs in spec.reproducibility.items()},
        "NUMERICS": spec.numerics,
        "CHOSEN": tuple(name for name, t in spec.arguments.items() if len(t.dtype) > 1),
    }
    for name, expected in due.items():
        if (got := getattr(plan, name)) != expected:
            raise AssertionError(f"{plan.__name__}.{name} must be {expected} as the spec says, got {got}")
    Problem.kind_of(subject).check_plan(subject)


def _argument(subject: Subject, name: str) -> Argument:
    spec = subject.spec
    tensor = spec.arguments[name]
    updated = any(t.updates == name for t in spec.outputs.values())
    role = "inout" if updated else "out" if name in spec.outputs else "in"
    over = Problem.kind_of(subject).over(spec, tensor)
    return Argument(name, role, over, tensor.dtype, tensor.optional or "", tensor.layout, tensor.may_alias)


def check_order(problem: Problem, memory: Memory) -> None:
    """Of several wrong arguments, the error names the first in the spec's order."""
    arrays, _ = with_saved(problem, problem.draw(), problem.stored_types(), problem.draw_hidden())
    arranged = arrange(problem, arrays, memory)
    arguments: dict[str, Any] = dict.fromkeys(problem.spec.arguments) | arranged.arguments
    order = [n for n in problem.spec.check_order or problem.spec.arguments if n in arranged.arguments]
    for place in range(len(order)):
        wrong = {n: arguments[n]._replace(element=stranger(problem, n)) for n in order[place:]}
        call = partial(problem.plan.run, **{**arguments, **wrong}, workspace=arranged.workspace)
        try:
            call()
        except Unsupported as error:
            if repr(order[place]) in str(error):
                continue
            needs = f"the error must name {order[place]!r}"
            raise AssertionError(f"{order[place:]} are wrong, so {needs}; got {error}") from None
        raise AssertionError(f"{order[place:]} have wrong element types, but run accepts them")


def check_entry_points(problem: Problem, memory: Memory) -> None:
    """`run_unchecked` and `bind` do what `run` does."""
    arrays, _ = with_saved(problem, problem.draw(), problem.stored_types(), problem.draw_hidden())
    base = arrange(problem, arrays, memory).run()
    for name in ("run_unchecked", "bind"):
        arranged = arrange(problem, arrays, memory)
        started = getattr(problem.plan, name)(**arranged.passed, workspace=arranged.workspace)
        if started is not None:
            started()
        memory.finish()
        for output in base:
            if not same_bits(base[output], arranged.placed[output].values()):
                raise AssertionError(f"{problem.plan.sku.symbol}: {name} gives other bits of {output!r} than run")
