"""One case: all contestants compute, those that disagree with us are excluded, the rest are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Any

from baracuda.checking.problems.subject import Subject

from .case import Case, Tensor, Traffic
from .machine import Machine, Samples
from .peers import Body, Call, Maker
from .timing import spread

OURS = "ours"
SHORT = 100.0  # microseconds; below it the host's part of a call is not hidden, and a graph is replayed
# Of norms: errors of one arithmetic, not of two. Whole numbers have none.
TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 5e-3, "bf16": 3e-2}
VIEW = "returns a view of what it is given, so there is nothing to time"
_ROUNDS = (15, 60)  # at least and at most, within
_BUDGET = 0.6e6  # microseconds for all contestants of a case
_MOST_SETS = 128


@dataclass(frozen=True)
class Measured:
    """A contestant's device time for a case, or the `problem` that prevented it."""

    op: str
    case: str
    element: str
    peer: str
    kernel: str = ""
    us: float | None = None
    low: float | None = None  # quartiles
    high: float | None = None
    samples: int = 0
    how: str = ""  # "graph" or "events"
    read: int = 0
    written: int = 0
    flops: int | None = None
    error: float | None = None  # relative to ours
    problem: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)
    asked: tuple[str, ...] = ()  # the peers that there were


@dataclass(frozen=True)
class Buffers:
    """Memory for one call of a plan: random inputs, poisoned outputs."""

    plan: Any
    arrays: dict[str, Any]
    before: dict[str, Any]  # what is updated in place, as it was
    bound: Call

    @classmethod
    def allocate(cls, case: Case, plan: Any, tensors: list[Tensor], machine: Machine) -> Buffers:
        """Anything new; inputs that a forward saves are what our own forward makes of the others."""
        saved = case.spec.gradient.saved if case.spec.gradient else ()
        inputs = {t.name: machine.random(t) for t in tensors if t.role != "out" and t.name not in saved}
        outputs = {t.name: machine.poisoned(t) for t in tensors if t.role == "out"}
        arrays = {**inputs, **outputs, **_saved(case, inputs, machine)}
        before = {t.name: machine.copy(arrays[t.name]) for t in tensors if t.role == "inout"}
        return cls(plan, arrays, before, _bound(plan, arrays, machine))

    def inputs(self, machine: Machine) -> dict[str, Any]:
        """For a peer: the same inputs, and what is updated in place in memory of its own."""
        shared = {name: array for name, array in self.arrays.items() if self.plan.ARGUMENTS[name].role == "in"}
        return shared | {name: machine.copy(array) for name, array in self.before.items()}

    def results(self) -> dict[str, Any]:
        """What the plan writes."""
        return {name: array for name, array in self.arrays.items() if self.plan.ARGUMENTS[name].written}


def contest(case: Case, makers: Mapping[str, Maker], machine: Machine) -> list[Measured]:
    """Measure our plan and all of `makers` that have the op; one result each."""
    with machine.working():
        try:
            return _contest(case, makers, machine)
        except Exception as error:
            return [Measured(case.op, case.label, case.element.value, OURS, problem=_summary(error))]
        finally:
            machine.release()


def _contest(case: Case, makers: Mapping[str, Maker], machine: Machine) -> list[Measured]:
    plan = case.plan(machine.device)
    tensors = case.tensors(plan)
    traffic = Traffic.of(tensors)
    common: dict[str, Any] = {"op": case.op, "case": case.label, "element": case.element.value}
    common |= {"read": traffic.read, "written": traffic.written, "flops": case.flops()}
    first = Buffers.allocate(case, plan, tensors, machine)
    first.bound()
    machine.finish()
    bodies, calls, errors, problems = _agreeing(case, makers, first, machine)
    times, how, late = _timed(case, first, tensors, bodies, calls, machine)
    kernel = {OURS: plan.sku.symbol}
    results = []
    for name in calls:
        problem = late.get(name, "")
        outcome = {"peer": name, "kernel": kernel.get(name, ""), "error": errors.get(name), "problem": problem}
        if name in times:
            us, low, high = spread(times[name])
            outcome |= {"us": us, "low": low, "high": high, "samples": len(times[name]), "how": how[name]}
        results.append(Measured(**common, **outcome))
    return results + [Measured(**common, peer=n, error=errors.get(n), problem=why) for n, why in problems.items()]


def _agreeing(
    case: Case, makers: Mapping[str, Maker], first: Buffers, machine: Machine
) -> tuple[dict[str, Body], dict[str, Call], dict[str, float], dict[str, str]]:
    """Contestants that agree with us, their calls on the first buffers, and errors of the others."""
    bodies: dict[str, Body] = {}
    calls: dict[str, Call] = {OURS: first.bound}
    errors: dict[str, float] = {}
    problems: dict[str, str] = {}
    ours = first.results()
    for name, maker in makers.items():
        try:
            body = maker(case)
            if body is None:
                continue
            given = first.inputs(machine)
            call = body(given)
            theirs = call()
            machine.finish()
            errors[name] = _error(ours, theirs, machine)
            kind = case.element.row.acc if case.element.value.startswith("c") else case.element  # of complex parts
            allowed = TOLERANCE.get(kind.value, 0.0)
            if not errors[name] <= allowed:  # NaN included
                problems[name] = f"disagrees: relative error {errors[name]:.3g}, at most {allowed:g} is allowed"
                continue
            if _views(theirs, given) and not any(t.updates for t in case.spec.outputs.values()):
                problems[name] = VIEW
                continue
            bodies[name], calls[name] = body, call
        except Exception as error:
            problems[name] = _summary(error)
            machine.release()
    return bodies, calls, errors, problems


def _error(ours: Mapping[str, Any], theirs: Mapping[str, Any], machine: Machine) -> float:
    """The largest error over the outputs that both have."""
    errors = [machine.error(theirs[name], ours[name]) for name in ours if name in theirs]
    return float("nan") if not errors or any(e != e for e in errors) else max(errors)


def _views(theirs: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether all that a peer returns is memory that it was given, as is a gradient that is only broadcast."""
    memory = {_memory(tensor) for tensor in given.values() if tensor is not None}
    return all(_memory(tensor) in memory for tensor in theirs.values())


def _memory(tensor: Any) -> Any:
    """What tells the memory of two tensors of torch apart; any other array has memory of its own."""
    return tensor.untyped_storage().data_ptr() if hasattr(tensor, "untyped_storage") else object()


def _timed(
    case: Case,
    first: Buffers,
    tensors: list[Tensor],
    bodies: Mapping[str, Body],
    calls: dict[str, Call],
    machine: Machine,
) -> tuple[Samples, dict[str, str], dict[str, str]]:
    """Samples of each contestant, the method, and notes on those timed differently."""
    guess = {name: median(samples) for name, samples in machine.cold(calls, 3).items()}
    if min(guess.values()) >= SHORT:
        return machine.cold(calls, _rounds(sum(guess.values()))), dict.fromkeys(calls, "events"), {}
    sets: dict[str, list[Call]] = {name: [call] for name, call in calls.items()}
    nbytes = sum(t.nbytes for t in tensors)
    buffers = []
    for _ in range(min(_MOST_SETS, ceil(2 * machine.l2_bytes / max(1, nbytes)))):
        buffers.append(fresh := Buffers.allocate(case, first.plan, tensors, machine))
        sets[OURS].append(fresh.bound)
        for name, body in bodies.items():
            sets[name].append(body(fresh.inputs(machine)))
    times, failed = machine.replayed(sets, _ROUNDS[1] // 2, min(guess.values()))
    how = dict.fromkeys(times, "graph")
    if failed:
        times |= machine.cold({name: calls[name] for name in failed}, _ROUNDS[1] // 2)
        how |= dict.fromkeys(failed, "events")
    return times, how, {name: f"not captured, timed by events: {reason}" for name, reason in failed.items()}


def _rounds(microseconds: float) -> int:
    least, most = _ROUNDS
    return max(least, min(most, int(_BUDGET / microseconds)))


def _bound(plan: Any, arrays: Mapping[str, Any], machine: Machine) -> Call:
    workspace = machine.scratch(plan.workspace_bytes) if plan.workspace_bytes else None
    call: Callable[[], Any] = plan.bind(**arrays, workspace=workspace, stream=machine.stream)
    return call


def _saved(case: Case, inputs: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """What our forward saves for these inputs, by the inputs' names.

    Fields that the gradient lacks are those of the forward's first benchmark.
    """
    gradient = case.spec.gradient
    if gradient is None or not gradient.saved:
        return {}
    subject = Subject(case.subject.others[gradient.of], case.subject.others, case.subject.package)
    known = {**next(iter(subject.spec.bench.cases), {}), **case.values}
    fields = {name: value for name, value in known.items() if name in subject.spec.descriptor}
    forward = Case(subject, fields, case.element)
    plan = forward.plan(machine.device)
    arrays = {}
    for tensor in forward.tensors(plan):
        existing = None if tensor.role == "out" else inputs.get(tensor.name)
        fresh = machine.poisoned if tensor.role == "out" else machine.random
        arrays[tensor.name] = fresh(tensor) if existing is None else existing
    _bound(plan, arrays, machine)()
    return {name: arrays[name] for name in gradient.saved}


def _summary(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
