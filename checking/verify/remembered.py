"""Whatever a plan remembers of earlier calls and selections, its answers are those of a plan that remembers nothing.

On the recording driver: an answer is every launch with all its arguments, or the error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from baracuda.runtime import TensorView
from baracuda.runtime.arrays.axes import contiguous_strides, span
from baracuda.runtime.arrays.element import ElementKind

from ..problems.problem import Problem
from ..trials.libraries import LIBRARIES, current_stream, libraries
from ..trials.memory import PATTERNS, laid_out, packed_along
from ..trials.recording import CAPTURING, GPUS, OF_LAUNCHES, RecordingDriver, forget, recording
from ..variables import SAMPLE
from .refusals import stranger

_APART = 1 << 45  # bytes between arrays
_AROUND = 1 << 36  # elements of an array's buffer on either side of its first element
# Unchecked before checked: that must not make the checks forget. Twice: the second time it is remembered.
_ENTRIES = ("run_unchecked", "run", "run", "can_implement", "bind")


class _Stream:
    """An object that gives a handle."""

    def __init__(self, handle: int) -> None:
        self.__cuda_stream__ = 0, handle

    def __repr__(self) -> str:
        return "an object"


@dataclass(frozen=True, eq=False)
class _Call:
    """What a caller passes, the libraries' current streams at that time, and what was changed of whom for that."""

    arrays: Mapping[str, TensorView | None]
    workspace: TensorView | None
    library: str = "views"
    stream: object = None
    current: int = 0x100  # of device 0; of others that and their number
    changed: tuple[str, str] = ("nothing", "changed")

    def but(self, name: str, change: str, **views: TensorView | None) -> _Call:
        """The call with other arrays."""
        return replace(self, arrays={**self.arrays, **views}, changed=(name, change))

    def on(self, device: int) -> _Call:
        """The call with everything on another device."""
        name = f"cuda:{device}"
        moved = {n: v and v._replace(device=name) for n, v in self.arrays.items()}
        workspace = self.workspace and self.workspace._replace(device=name)
        return replace(self, arrays=moved, workspace=workspace, changed=("all", f"on {name}"))

    @property
    def label(self) -> str:
        return f"{' '.join(self.changed)} ({self.library})"


def check_remembered(problem: Problem) -> None:
    """After any other call, each call launches or refuses what it does with a fresh plan on fresh devices."""
    kind = type(problem.plan)

    def fresh() -> Any:
        forget()
        kind._selected.clear()
        return kind.select(problem.descriptor)

    with apart(kind) as driver:
        plan = fresh()
        base = _call(problem, plan)
        calls = [(base, "run")]
        for call in _sample(_changed(problem, base), plan.sku.symbol):
            entries = _ENTRIES if call.library == "views" else _ENTRIES[:3]
            calls += [(call, entry) for entry in entries] + [(base, "run")]
        answers = {(id(call), entry): _answer(driver, fresh(), entry, call) for call, entry in dict.fromkeys(calls)}
        plan = fresh()
        for call, entry in calls:
            expected, got = answers[id(call), entry], _answer(driver, plan, entry, call)
            if got != expected:
                after = f"{plan.sku.symbol} on {problem.descriptor}: after other calls {entry} with {call.label}"
                raise AssertionError(f"{after} gives {_shown(got)}, with a fresh plan {_shown(expected)}")


def check_capture(problem: Problem) -> None:
    """A prepared plan launches into a stream that is being captured, and calls nothing of the driver that allocates,
    waits or loads; a plan that is not prepared refuses, and loads nothing.
    """
    kind = type(problem.plan)
    with apart(kind) as driver:
        plan = kind.select(problem.descriptor)
        base = _call(problem, plan)
        for device in range(len(GPUS)):
            forget()
            kind._selected.clear()
            for call in _sample(_placed_anew(problem, base), f"{plan.sku.symbol} {device}"):
                call = replace(call.on(device), stream=CAPTURING, changed=call.changed)
                usual = _answer(driver, kind.select(problem.descriptor), "run", replace(call, stream=5))
                if not usual or isinstance(usual[0], str):  # nothing to launch, or refused
                    continue
                forget()
                kind._selected.clear()
                _require_refused(driver, kind.select(problem.descriptor), call, usual)
                prepared = kind.select(problem.descriptor).prepare(f"cuda:{device}")
                for turn in range(2):
                    driver.calls.clear()
                    got = _answer(driver, prepared, "run", call)
                    label = f"{prepared.sku.symbol} on {problem.descriptor}: run {turn + 1} with {call.label}"
                    if got != tuple(launch._replace(stream=CAPTURING) for launch in usual):
                        raise AssertionError(f"{label} under capture gives {_shown(got)}, else {_shown(usual)}")
                    if others := set(driver.calls) - OF_LAUNCHES:
                        raise AssertionError(f"{label} calls {', '.join(sorted(others))}, which no capture allows")


def _require_refused(driver: RecordingDriver, plan: Any, call: _Call, usual: tuple[Any, ...]) -> None:
    driver.calls.clear()
    got = _answer(driver, plan, "run", call)
    if got[:1] != ("DriverError",) or "prepare" not in got[1] or "cuLibraryLoadData" in driver.calls:
        raise AssertionError(f"{plan.sku.symbol}: not prepared, run under capture gives {_shown(got)}; needs an error")


def check_streams(problem: Problem) -> None:
    """Whichever entry starts them, and whenever, kernels go to the stream that the caller passes."""
    kind = type(problem.plan)
    with apart(kind) as driver:
        forget()
        plan = kind.select(problem.descriptor)
        base = replace(_call(problem, plan), stream=5)
        usual = _answer(driver, plan, "run", base)
        if not usual or isinstance(usual[0], str):  # nothing to launch, or refused
            return
        bound = plan.bind(**base.arrays, workspace=base.workspace, stream=5)
        for stream, handle in ((None, 5), (7, 7), (_Stream(8), 8)):
            driver.launches.clear()
            bound(stream)
            answers = {"a bound call": tuple(driver.launches)}
            if stream is not None:
                call = replace(base, stream=stream)
                answers |= {entry: _answer(driver, plan, entry, call) for entry in ("run", "run_unchecked")}
            for entry, got in answers.items():
                if got != (due := tuple(launch._replace(stream=handle) for launch in usual)):
                    given = f"{plan.sku.symbol}: {entry} with stream={stream}, after one with another,"
                    raise AssertionError(f"{given} gives {_shown(got)}, needs {_shown(due)}")


@contextmanager
def apart(kind: Any) -> Iterator[RecordingDriver]:
    """The recording driver and the made-up libraries; what `kind` has selected is put back in the end."""
    selected = dict(kind._selected)
    try:
        with recording() as driver, libraries():
            kind._selected.clear()
            yield driver
    finally:
        kind._selected.clear()
        kind._selected.update(selected)


def _answer(driver: RecordingDriver, plan: Any, entry: str, call: _Call) -> tuple[Any, ...]:
    """The launches of a call, the verdict, or the type and text of the error."""
    make = LIBRARIES[call.library]
    arrays = {name: view and make(view) for name, view in call.arrays.items()}
    workspace = call.workspace and make(call.workspace)
    driver.launches.clear()
    try:
        with current_stream(call.current):
            answer = getattr(plan, entry)(**arrays, workspace=workspace, stream=call.stream)
            if entry == "bind":
                answer()
    except Exception as error:
        return type(error).__name__, str(error)
    if entry == "can_implement":
        return "verdict", f"{bool(answer)} {answer}"
    return tuple(driver.launches)


def _shown(answer: tuple[Any, ...]) -> str:
    """An answer in a line, without texts of kernels."""
    if answer and isinstance(answer[0], str):
        return f"{answer[0]}: {answer[1]}"
    shown = [
        f"{at.source.symbol} {at.source.defines} on {GPUS[at.context & 0xFF]} of {at.grid} blocks "
        f"in stream {at.stream:#x} with {at.words.hex()}"
        for at in answer
    ]
    return "; ".join(shown) or "no launch"


def _call(problem: Problem, plan: Any) -> _Call:
    """A call with contiguous arrays on the first device, far apart."""
    arrays: dict[str, TensorView | None] = dict.fromkeys(problem.spec.arguments)
    for number, name in enumerate(problem.arguments, 1):
        arrays[name] = _laid_out(problem, name, "contiguous", number * _APART)
    workspace = None
    if needed := plan.workspace_bytes:
        pointer = (len(arrays) + 1) * _APART
        workspace = TensorView(pointer, (needed,), (1,), ElementKind.U8, "cuda:0", False, (0, needed), None)
    return _Call(arrays, workspace)


def _laid_out(problem: Problem, name: str, pattern: str, pointer: int) -> TensorView:
    shape, kind = problem.shape_of(name), problem.stored_types()[name]
    vec, axis = 16 // problem.element.row.bytes, problem.packed_axis(name)
    if axis is None:
        strides, shift = laid_out(pattern, shape, vec, problem.arguments[name].layout)
    else:
        strides, shift = packed_along(axis, pattern, shape, vec)
    pointer += shift * kind.row.bytes
    return TensorView(pointer, shape, tuple(strides), kind, "cuda:0", False, (_AROUND, _AROUND), None)


def _sample(calls: Iterable[_Call], seed: str) -> list[_Call]:
    """Calls with each change and each changed array of each library, in a sampled run; else all."""
    if SAMPLE not in os.environ:
        return list(calls)
    seen: set[tuple[str, str]] = set()
    chosen = []
    for call in sorted(calls, key=lambda call: crc32(f"{seed} {call.label}".encode())):
        new = {(call.library, text) for text in call.changed} - seen
        seen |= new
        chosen += [call] if new else []
    return chosen


def _changed(problem: Problem, base: _Call) -> Iterator[_Call]:
    """The call with one thing changed, in each library."""
    for library in LIBRARIES:
        usual = replace(base, library=library)
        yield usual
        yield from _other_arrays(problem, usual)
        yield from _other_workspaces(usual)
        yield replace(usual, current=0x200, changed=("stream", "current"))
        for stream in (0, 7, _Stream(8)):
            yield replace(usual, stream=stream, changed=("stream", str(stream)))
        for device in range(1, len(GPUS) + 1):  # there is no last one
            yield usual.on(device)


def _placed_anew(problem: Problem, base: _Call) -> Iterator[_Call]:
    """All arrays in each pattern, and each alone."""
    views = {name: view for name, view in base.arrays.items() if view is not None}
    for pattern in PATTERNS:
        anew = {n: _laid_out(problem, n, pattern, v.pointer) for n, v in views.items()}
        yield base.but("all", pattern, **anew)
        for name, view in anew.items():
            yield base.but(name, pattern, **{name: view})


def _other_arrays(problem: Problem, base: _Call) -> Iterator[_Call]:
    """One array changed in one respect."""
    yield from _placed_anew(problem, base)
    views = {name: view for name, view in base.arrays.items() if view is not None}
    for name, view in views.items():
        for change, other in _other_views(problem, name, view):
            yield base.but(name, change, **{name: other})
        argument = problem.plan.ARGUMENTS[name]
        for place, tensor in views.items() if argument.written else ():
            over = "in the place of" if place in argument.may_alias else "over"
            if place != name:
                yield base.but(name, f"{over} an array", **{name: view._replace(pointer=tensor.pointer)})
                on = tensor.pointer + view.element.row.bytes
                yield base.but(name, f"{over} an array, one element on", **{name: view._replace(pointer=on)})
    for name in base.arrays.keys() - views.keys():
        yield base.but(name, "given", **{name: next(iter(views.values()))})


def _other_views(problem: Problem, name: str, view: TensorView) -> Iterator[tuple[str, TensorView | None]]:
    size = view.element.row.bytes
    yield "missing", None
    for change, distance in (("elsewhere", _APART >> 1), ("one element on", size), ("16 bytes on", 16)):
        yield change, view._replace(pointer=view.pointer + distance)
    yield "half an element on", view._replace(pointer=view.pointer + max(size // 2, 1))
    yield "on another device", view._replace(device="cuda:1")
    yield "read-only", view._replace(readonly=True)
    _, high = span(view.shape, view.strides)
    yield "cut short", view._replace(capacity=(_AROUND, max(high - 1, 0)))
    longer = (*view.shape[:-1], view.shape[-1] + 1) if view.shape else (2,)
    yield "too long", view._replace(shape=longer, strides=contiguous_strides(longer))
    for other in (*problem.plan.elements_of(name), stranger(problem, name)):
        if other != view.element:
            yield f"of {other}", view._replace(element=other)


def _other_workspaces(base: _Call) -> Iterator[_Call]:
    if (view := base.workspace) is None:
        return
    output = [v for v in base.arrays.values() if v is not None][-1]
    others = {
        "elsewhere": view._replace(pointer=view.pointer + (_APART >> 1)),
        "16 bytes on": view._replace(pointer=view.pointer + 16),
        "8 bytes on": view._replace(pointer=view.pointer + 8),
        "one byte short": view._replace(shape=(view.shape[0] - 1,)),
        "longer": view._replace(shape=(view.shape[0] + 64,), capacity=(0, view.shape[0] + 64)),
        "on another device": view._replace(device="cuda:1"),
        "read-only": view._replace(readonly=True),
        "over an array": view._replace(pointer=output.pointer // 16 * 16),
        "missing": None,
    }
    for change, other in others.items():
        yield replace(base, workspace=other, changed=("workspace", f"workspace {change}"))
