"""Calls that a plan must refuse: each requirement violated, each argument invalid, with the right error and order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np

from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition, fields_of, read_condition
from baracuda.runtime import (
    BaracudaError,
    BufferTooSmall,
    ElementKind,
    InvalidProblem,
    MathPrecision,
    MisalignedOperand,
    PlanPreference,
    TensorView,
    Unsupported,
    WorkspaceTooSmall,
)
from baracuda.runtime import errors as tree
from baracuda.runtime.errors import DriverError
from baracuda.runtime.plans.formula import in_words
from baracuda.runtime.values import short_repr

from ..oracles.oracle import with_saved
from ..problems.problem import Problem
from ..problems.subject import Subject
from ..trials.arrange import arrange
from ..trials.memory import Memory

# Values that a requirement may refuse, by type of field.
_SUSPECTS: dict[str, tuple[Any, ...]] = {
    "shape": ((), (-1, 4), (4, -1), (2,) * 9, (2,) * 8, (0, 0), (3,), (4, 4)),
    "int": (-1, 0, 1, 2, 3, 5, 9, -2, -3, -9, 255, 256, 1 << 40),
    "float": (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 2.0),
    "bool": (False, True),
    "kind": (),
}


_ENOUGH = 2500  # values tried at least


# Values of other types than the field's, which has 64 bits.
_STRANGERS: dict[str, tuple[Any, ...]] = {
    "shape": (7, "ab", (1.5,), (1 << 63,)),
    "int": ("1", 1.5, None, 1 << 63),
    "float": ("1.0", None, 10**400),
    "bool": (1, 0, None),
    "kind": ("no such", 3, None),
}


def check_requirements(subject: Subject) -> None:
    """Each requirement, where it is the first violated, raises its error with the values seen and needed.

    The element is checked last; values that violate nothing are accepted.
    """
    element = subject.spec.dtypes[0]
    base = subject.values(subject.spec.tests.cases[0])
    missing = {r.that: r.raises for r in subject.spec.require}
    unclaimed = next((k for k in ElementKind if k.value not in subject.spec.dtypes), None)
    others = (subject.values(case) for case in subject.spec.tests.cases[1:])
    changed = (values for other in others for values in _alone(subject, other))
    for turn, values in enumerate(chain(_alone(subject, base), changed, _violations(subject, base))):
        if turn > _ENOUGH and not missing:  # some ops have hundreds of thousands of pairs
            break
        try:
            first = _first_violated(subject, values)
        except ConditionError:  # a requirement has no value for these
            continue
        error = _error(partial(_select, subject, values, element))
        if first is None and error is not None and not _immense(values):
            raise AssertionError(f"{values} violate no requirement, but select says {error!r}")
        if first is None:
            continue
        kind = getattr(tree, first.raises)
        if first.that in missing and unclaimed:
            error = _error(partial(_select, subject, values, unclaimed))
        if type(error) is not kind:
            raise AssertionError(f"{values}: {first.that!r} comes first, so it raises {first.raises}; got {error!r}")
        condition = read_condition(first.that, subject.spec.descriptor)
        for text in (f"needs {in_words(condition)}", *(f"{f}={values[f]!r}" for f in fields_of(condition))):
            if text not in str(error):
                raise AssertionError(f"the message {str(error)!r} does not say {text!r}")
        missing.pop(first.that, None)
    if missing:
        raise AssertionError(f"no values were found that violate {list(missing)} first; the test cannot show them")


def _immense(values: Mapping[str, Any]) -> bool:
    """Whether some extent is too large for any memory."""
    return any(isinstance(v, int) and v >= 1 << 31 for v in values.values())


def _select(subject: Subject, values: Mapping[str, Any], element: ElementKind | str) -> Any:
    return subject.plan.select(subject.descriptor(values, element))


def _suspects(subject: Subject, base: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {n: [*_variations(f.type, base[n]), *_SUSPECTS[f.type]] for n, f in _fields(subject)}


def _alone(subject: Subject, base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cases with one field changed."""
    for name, values in _suspects(subject, base).items():
        for value in values:
            yield {**_canonical(base, subject), name: value}


def _violations(subject: Subject, base: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    fields = _suspects(subject, base)
    names = list(fields)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            for a, b in product(fields[first], fields[second]):
                yield {**_canonical(base, subject), first: a, second: b}


def _variations(kind: str, value: Any) -> list[Any]:
    """The value, and for a shape its variants with each extent -1, 0 or 1."""
    if kind != "shape":
        return [value]
    shape = tuple(value)
    changed = [(*shape[:i], n, *shape[i + 1 :]) for i in range(len(shape)) for n in (-1, 0, 1)]
    return [shape, *changed]


def _fields(subject: Subject) -> list[tuple[str, Any]]:
    return list(subject.spec.descriptor.items())


def _canonical(values: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
    return {n: tuple(v) if subject.spec.descriptor[n].type == "shape" else v for n, v in values.items()}


def _first_violated(subject: Subject, values: Mapping[str, Any]) -> Any:
    """The first requirement that `values` violate, evaluated here and not by the generated plan."""
    for requirement in subject.spec.require:
        if not evaluate_condition(requirement.that, values):
            return requirement
    return None


def check_types(subject: Subject) -> None:
    """A field of another type raises InvalidProblem with its name and the value; a list is a shape."""
    base, element = subject.values(subject.spec.tests.cases[0]), subject.spec.dtypes[0]
    for name, field in _fields(subject):
        for value in _STRANGERS[field.type]:
            error = _error(partial(_select, subject, {**base, name: value}, element))
            if type(error) is not InvalidProblem or name not in str(error) or short_repr(value) not in str(error):
                raise AssertionError(f"{name}={value!r} is no {field.type}, so it raises InvalidProblem; got {error!r}")


def check_elements(subject: Subject) -> None:
    """Exactly the element types of the spec can be selected."""
    values = subject.values(subject.spec.tests.cases[0])
    for kind in ElementKind:
        error = _error(partial(_select, subject, values, kind))
        claimed = kind.value in subject.spec.dtypes
        if claimed and error is not None:
            raise AssertionError(f"element {kind} is claimed, but select says {error!r}")
        if not claimed and (type(error) is not Unsupported or f"got element={kind.value!r}" not in str(error)):
            raise AssertionError(f"element {kind} is not claimed, so it must raise Unsupported; got {error!r}")


@dataclass(frozen=True)
class _BadCall:
    """Arguments with one defect, and the expected error."""

    label: str
    kind: type[BaracudaError]
    arguments: dict[str, Any]
    workspace: Any
    says: tuple[str, ...] = ()


def check_arguments(problem: Problem, memory: Memory) -> None:
    """Each argument with each defect raises its error and changes no output, and `can_implement` agrees."""
    arrays, _ = with_saved(problem, problem.draw(), problem.stored_types(), problem.draw_hidden())
    arranged = arrange(problem, arrays, memory)
    arguments: dict[str, Any] = dict.fromkeys(problem.spec.arguments) | arranged.arguments
    verdict = problem.plan.can_implement(**arguments, workspace=arranged.workspace)
    if not verdict:
        raise AssertionError(f"can_implement refuses good arguments: {verdict}")
    before = {n: p.buffer.read() for n, p in arranged.placed.items()}
    for call in _bad_calls(problem, arguments, arranged.workspace):
        error = _error(partial(problem.plan.run, **call.arguments, workspace=call.workspace))
        if type(error) is not call.kind:
            raise AssertionError(f"{call.label}: {call.kind.__name__} is expected, got {error!r}")
        for text in (f"{type(problem.plan).__name__}: ", *call.says):
            if text not in str(error):
                raise AssertionError(f"{call.label}: the message {str(error)!r} does not say {text!r}")
        verdict = problem.plan.can_implement(**call.arguments, workspace=call.workspace)
        if verdict or type(verdict.error) is not call.kind or str(verdict.error) != str(error):
            raise AssertionError(f"{call.label}: can_implement says {verdict}, run says {error!r}")
    memory.finish()
    for name, placed in arranged.placed.items():
        if not np.array_equal(before[name], placed.buffer.read()):
            raise AssertionError(f"a refused call wrote to {name!r}")
    problem.plan.run(**arguments, workspace=arranged.workspace)
    memory.finish()


def _bad_calls(problem: Problem, good: dict[str, Any], workspace: TensorView | None) -> Iterator[_BadCall]:
    for name in problem.spec.arguments:
        tensor: TensorView | None = good[name]
        if tensor is None:
            stray = next(v for v in good.values() if v is not None)
            for label, view in _unexpected_arrays(problem, name, stray):
                arguments = {**good, name: view}
                yield _BadCall(f"{name} {label}", InvalidProblem, arguments, workspace, (name, "must be absent"))
            continue
        yield _BadCall(f"{name} missing", InvalidProblem, {**good, name: None}, workspace, (name, "is required"))
        for label, due, view, says in _bad_views(problem, name, tensor):
            yield _BadCall(f"{name} {label}", due, {**good, name: view}, workspace, says)
        if problem.plan.ARGUMENTS[name].written:
            yield from _bad_aliases(problem, name, good, workspace)
    for label, due, arguments, says in problem.wrong_calls(good):
        yield _BadCall(label, due, arguments, workspace, says)
    if workspace is not None:
        needed = problem.plan.workspace_bytes
        yield _BadCall("no workspace", WorkspaceTooSmall, good, None, (f"needs {needed} bytes, got none",))
        short = workspace._replace(shape=(needed - 1,))
        yield _BadCall("short workspace", WorkspaceTooSmall, good, short, (f"needs {needed} bytes, got {needed - 1}",))
        yield _BadCall("odd workspace", MisalignedOperand, good, workspace._replace(pointer=workspace.pointer + 8))
        backwards = workspace._replace(pointer=workspace.pointer + needed - 1, strides=(-1,))
        yield _BadCall("backward workspace", InvalidProblem, good, backwards, ("workspace", "contiguous"))
        cut = workspace._replace(capacity=(0, needed - 1))
        yield _BadCall("cut workspace", BufferTooSmall, good, cut, ("workspace", f"needs {needed}, got {needed - 1}"))
        locked = workspace._replace(readonly=True)
        yield _BadCall("read-only workspace", InvalidProblem, good, locked, ("workspace", "read-only"))


def stranger(problem: Problem, name: str) -> ElementKind:
    """An element type that an argument may not have."""
    known = problem.plan.elements_of(name)
    return next(kind for kind in (ElementKind.I16, ElementKind.I8, ElementKind.C64) if kind not in known)


def _bad_views(
    problem: Problem, name: str, tensor: TensorView
) -> Iterator[tuple[str, type[BaracudaError], TensorView, tuple[str, ...]]]:
    wrong = stranger(problem, name)
    yield f"of {wrong}", Unsupported, tensor._replace(element=wrong), (name, f"got {wrong}")
    if tensor.shape:
        longer = (*tensor.shape[:-1], tensor.shape[-1] + 1)
        yield "too long", InvalidProblem, tensor._replace(shape=longer), (name, f"{tensor.shape}", f"got {longer}")
    deeper = (1, *tensor.shape)
    yield "too deep", InvalidProblem, tensor._replace(shape=deeper, strides=(0, *tensor.strides)), (name,)
    if 0 in tensor.shape:
        return
    size = int(np.prod(tensor.shape))
    needed, got = size + 5, size + 4
    yield "past its end", BufferTooSmall, tensor._replace(capacity=(5, size - 1)), (f"needs {needed}, got {got}",)
    if size > 1:
        layout = problem.arguments[name].layout
        flipped = tuple(-s for s in tensor.strides)
        if layout == "inner":
            flipped = (*flipped[:-1], tensor.strides[-1])
            yield "stepping", InvalidProblem, tensor._replace(strides=(*tensor.strides[:-1], 2)), (name, "stride 1")
        if layout != "contiguous" and any(n > 1 and s < 0 for n, s in zip(tensor.shape, flipped, strict=True)):
            yield "before its start", BufferTooSmall, tensor._replace(strides=flipped, capacity=(0, size)), (name,)
    if problem.plan.ARGUMENTS[name].written:
        yield "read-only", InvalidProblem, tensor._replace(readonly=True), (name, "read-only")
        free = tensor.shape[:-1] if problem.arguments[name].layout == "inner" else tensor.shape
        if max(free, default=1) > 1:
            axis = free.index(max(free))
            flat = tuple(0 if a == axis else s for a, s in enumerate(tensor.strides))
            dense = problem.arguments[name].layout == "contiguous"  # which is asked first
            error, word = (Unsupported, "contiguous") if dense else (InvalidProblem, "overlap")
            yield "overlapping itself", error, tensor._replace(strides=flat), (name, word)


def _unexpected_arrays(problem: Problem, name: str, tensor: TensorView) -> Iterator[tuple[str, TensorView]]:
    """Arrays for an argument that must be absent: one of the right shape and type, and others."""
    shape, kinds = problem.shape_of(name), problem.plan.elements_of(name)
    fitting = tensor._replace(shape=shape, strides=(0,) * len(shape), element=kinds[0], readonly=True)
    yield "given", fitting
    yield "of another shape given", fitting._replace(shape=(*shape, 1), strides=(0,) * (len(shape) + 1))
    yield "of another type given", fitting._replace(element=next(kind for kind in ElementKind if kind not in kinds))


def _bad_aliases(
    problem: Problem, name: str, good: dict[str, Any], workspace: TensorView | None
) -> Iterator[_BadCall]:
    out: TensorView = good[name]
    if 0 in out.shape:
        return
    for other, tensor in good.items():
        if tensor is None or other == name or 0 in tensor.shape:
            continue
        allowed = other in problem.plan.ARGUMENTS[name].may_alias
        same = (tensor.shape, tensor.element) == (out.shape, out.element)
        moved = out._replace(pointer=tensor.pointer, strides=out.strides)
        if allowed and same:
            if moved.shape and max(moved.shape) > 1:
                moved = moved._replace(pointer=tensor.pointer + tensor.element.row.bytes, strides=tensor.strides)
                call = {**good, name: moved}
                yield _BadCall(f"{name} one element into {other}", InvalidProblem, call, workspace, ("overlaps",))
            continue
        yield _BadCall(f"{name} over {other}", InvalidProblem, {**good, name: moved}, workspace, ("overlaps",))
    if workspace is not None:
        over = workspace._replace(pointer=out.pointer // 16 * 16)
        yield _BadCall(f"workspace over {name}", InvalidProblem, good, over, ("workspace overlaps",))


def check_preferences(problem: Problem) -> None:
    """A preference is honoured or refused with the reason of every candidate, never ignored."""
    plan, descriptor = type(problem.plan), problem.descriptor
    able = [v.sku for v in plan.explain(descriptor).verdicts if v.accepted and v.sku]
    stable = any("bit_stable_across_arch" in sku.precision_guarantee.rungs for sku in able)
    rounds = any(v.sku and "math_precision" in v.sku.asked for v in plan.explain(descriptor).verdicts)
    least = min(plan.workspace_of(descriptor, sku) for sku in able)
    frugal = plan.select(descriptor, PlanPreference(max_workspace_bytes=least))
    if frugal.workspace_bytes > least:
        raise AssertionError(f"max_workspace_bytes={least} gave a plan that needs {frugal.workspace_bytes}")
    preferences = {
        "max_workspace_bytes": (PlanPreference(max_workspace_bytes=max(0, least - 1)), least > 0),
        "archs": (PlanPreference(archs=frozenset({"sm_61"})), True),
        "rungs": (PlanPreference(rungs=frozenset({"bit_stable_across_arch"})), not stable),
        "numerics": (PlanPreference(numerics=plan.NUMERICS + 1), True),
        "math_precision": (PlanPreference(math_precision=MathPrecision.TF32), not rounds),
    }
    for label, (preference, must_refuse) in preferences.items():
        error = _error(partial(plan.select, descriptor, preference))
        if must_refuse and type(error) is not Unsupported:
            raise AssertionError(f"{label} cannot be honoured, so Unsupported is expected; got {error!r}")
        if not must_refuse and error is not None:
            raise AssertionError(f"{label} can be honoured, but select says {error!r}")
    held_to = PlanPreference(archs=frozenset({problem.arch})) if problem.arch else None
    chosen, selected = plan.explain(descriptor, held_to).chosen, plan.select(descriptor, held_to).sku
    if chosen != selected:
        raise AssertionError(f"explain says {chosen}, select says {selected}")


def _error(call: Callable[[], Any]) -> BaracudaError | None:
    try:
        call()
    except DriverError:
        raise
    except BaracudaError as error:
        return error
    return None
