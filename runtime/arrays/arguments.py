"""A plan's array arguments: the table that a generated plan declares, and the checks that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import BaracudaError, InvalidProblem, Unsupported
from .axes import contiguous_strides
from .element import ElementKind
from .tensor import TensorView, byte_range, check_span, may_share, overlaps_itself, same_view, view

Views = dict[str, TensorView]
_OVERLAP_WORK = 100_000  # steps of the exact overlap search before two interleaved views count as overlapping


@dataclass(frozen=True, slots=True)
class Argument:
    """One tensor of a plan's `run`.

    `over` is the set it varies along: "element", "row" or "col", or "array" (or "list", of arrays) for families with
    other shapes. `dtypes` are the allowed element types, "T" for the descriptor's and "acc" for its accumulator.
    `optional` names the descriptor's flag that says whether the tensor is present. `may_alias` lists the inputs whose
    memory an output may reuse. `doc` says what it is.
    """

    name: str
    role: str  # "in", "out" or "inout"
    over: str
    dtypes: tuple[str, ...] = ("T",)
    optional: str = ""
    layout: str = "any"
    may_alias: tuple[str, ...] = ()
    doc: str = field(default="", compare=False)

    @property
    def written(self) -> bool:
        return self.role != "in"

    def elements(self, element: ElementKind) -> tuple[ElementKind, ...]:
        """The element types that the tensor may have when the descriptor's is `element`."""
        kinds = {"T": element, "acc": element.row.acc}
        return tuple(dict.fromkeys(kinds.get(d) or ElementKind(d) for d in self.dtypes))


class Named:
    """While entered, prefixes errors with the plan's name."""

    __slots__ = ("plan",)

    def __init__(self, plan: str) -> None:
        self.plan = plan

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BaracudaError):
            self.put_before(error)

    def put_before(self, error: BaracudaError) -> None:
        """Prefix the message of `error`."""
        error.args = (f"{self.plan}: {error}", *error.args[1:])


def take(arguments: Mapping[str, Argument], arrays: Mapping[str, object], absent: Sequence[str]) -> Views:
    """Views of the arrays that are present; checks only that they are readable.

    Raises InvalidProblem for an array that the descriptor excludes, without reading it.
    """
    for name in absent:
        if arrays[name] is not None:
            raise InvalidProblem(f"{name!r} must be absent when {arguments[name].optional}=False, got an array")
    return {name: view(array, name) for name, array in arrays.items() if array is not None}


def check(
    arguments: Mapping[str, Argument],
    order: Sequence[str],
    views: Views,
    shapes: Mapping[str, tuple[tuple[int, ...], ...]],
    present: Callable[[str], bool],
    element: ElementKind,
) -> None:
    """Raise the error of the first argument that no kernel can take.

    The order: dtypes; shapes, missing arrays and bounds of optional ones; strides; bounds of the others; then races:
    overlap, aliasing and read-only outputs. `shapes` lists the allowed shapes of each tensor.
    """
    for name in order:
        argument = arguments[name]
        if name in views and views[name].element not in (allowed := argument.elements(element)):
            raise Unsupported(f"{name!r} must hold {' or '.join(allowed)}, got {views[name].element}")
    check_shapes(arguments, order, views, shapes, present)
    for name in order:
        if name in views:
            _check_strides(arguments[name], views[name])
    for name in order:
        if name in views and not arguments[name].optional:
            check_span(views[name], name)
    _check_devices(views)
    for name in order:
        if name in views:
            _check_output(arguments[name], views[name])
    check_aliasing(arguments, views)


def check_shapes(
    arguments: Mapping[str, Argument],
    order: Sequence[str],
    views: Views,
    shapes: Mapping[str, tuple[tuple[int, ...], ...]],
    present: Callable[[str], bool],
) -> None:
    """Raise the error of the first argument that is missing or of another shape."""
    for name in order:
        argument, tensor = arguments[name], views.get(name)
        if tensor is not None and tensor.shape not in shapes[name]:
            allowed = " or ".join(map(str, shapes[name]))
            raise InvalidProblem(f"{name!r} must have shape {allowed}, got {tensor.shape}")
        if tensor is not None and argument.optional:
            check_span(tensor, name)
        if tensor is None and present(name):
            flag = f" when {argument.optional}=True" if argument.optional else ""
            raise InvalidProblem(f"{name!r} is required{flag}, got None")


def _check_devices(views: Views) -> None:
    devices: dict[str, list[str]] = {}
    for name, tensor in views.items():
        devices.setdefault(tensor.device, []).append(repr(name))
    if len(devices) > 1:
        groups = "; ".join(f"{', '.join(names)} on {device}" for device, names in devices.items())
        raise InvalidProblem(f"all arrays must be on one device, got {groups}")


def _check_strides(argument: Argument, tensor: TensorView) -> None:
    if 0 in tensor.shape or argument.layout == "any":
        return
    if argument.layout == "inner":
        if tensor.shape[-1] > 1 and tensor.strides[-1] != 1:
            fix = f"must have stride 1 along its last axis, got strides {tensor.strides}"
            raise InvalidProblem(f"{argument.name!r} {fix}")
        return
    contiguous = contiguous_strides(tensor.shape)
    if any(n > 1 and s != w for n, s, w in zip(tensor.shape, tensor.strides, contiguous, strict=True)):
        raise Unsupported(f"{argument.name!r} must be contiguous, got strides {tensor.strides}; copy it")


def _check_output(argument: Argument, tensor: TensorView) -> None:
    if not argument.written:
        return
    if tensor.readonly:
        raise InvalidProblem(f"{argument.name!r} is written to, got a read-only array")
    if overlaps_itself(tensor):
        raise InvalidProblem(
            f"elements of the output {argument.name!r} must not overlap, got strides {tensor.strides}"
        )


def check_aliasing(arguments: Mapping[str, Argument], views: Views) -> None:
    """Raise InvalidProblem where an output overlaps another array that it may not reuse."""
    ranges = _meeting([(name, *byte_range(tensor)) for name, tensor in views.items()])
    for name, low, high in ranges:
        if not arguments[name].written:
            continue
        out = views[name]
        for other, start, end in ranges:
            if end <= low or high <= start or other == name:
                continue
            other_tensor = views[other]
            if not may_share(out, other_tensor) or not _shares(out, other_tensor):
                continue
            if other in arguments[name].may_alias and same_view(out, other_tensor):
                continue
            if arguments[other].written and name > other:
                continue  # reported from the other side
            allowed = " or ".join(repr(n) for n in arguments[name].may_alias)
            fix = f"it may only be the same view as {allowed}" if allowed else "give it memory of its own"
            raise InvalidProblem(f"{name!r} overlaps {other!r}; {fix}")


def _meeting(ranges: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The ranges of bytes that meet another one; most arrays lie apart, and this runs in every call."""
    meeting, end, last = set(), 0, ""
    for name, low, high in sorted(ranges, key=lambda of: of[1:]):
        if low < end:
            meeting |= {name, last}
        if high > end:
            end, last = high, name
    return [of for of in ranges if of[0] in meeting]


class _Memory:
    """What NumPy needs to know about a view to decide on overlap; nothing is dereferenced."""

    def __init__(self, tensor: TensorView) -> None:
        row = tensor.element.row
        self.__array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            "strides": tuple(s * row.bytes for s in tensor.strides),
            "typestr": f"|V{row.bytes}",
            "data": (tensor.pointer, True),
        }


def _shares(a: TensorView, b: TensorView) -> bool:
    if same_view(a, b):
        return True
    try:
        first, second = np.asarray(_Memory(a)), np.asarray(_Memory(b))
        return bool(np.shares_memory(first, second, max_work=_OVERLAP_WORK))  # type: ignore[arg-type]
    except (np.exceptions.TooHardError, ArithmeticError, ValueError):  # too hard to decide
        return True
