"""A view of memory: bounds, overlap and aliasing from strided spans."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ..device import is_device
from ..errors import BufferTooSmall, InvalidProblem
from ..values import MAX_RANK, short_repr
from . import axes
from .element import ELEMENTS, ElementKind

_MEMORY = 1 << 63  # bytes: kernels hold addresses as signed words
_FAR = 1 << 127  # an axis that never moves may have any stride
_MOST = 2 * MAX_RANK + 3  # numbers of a view
_span = lru_cache(maxsize=4096)(axes.span)  # few layouts, many launches
_self_overlaps = lru_cache(maxsize=4096)(axes.self_overlaps)


class TensorView(NamedTuple):
    """Address, shape, strides in elements. Compare with `same_view`: `==` would compare owners, too.

    A named tuple: a frozen dataclass takes four times as long to build, and several are built per launch.
    """

    pointer: int  # address of the element at index (0, ..., 0)
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    device: str  # "host", "cuda:0", ...
    readonly: bool
    capacity: tuple[int, int] | None  # elements of the buffer before `pointer` and from it on, when known
    owner: object  # keeps the memory alive


def vetted(view: TensorView, name: str) -> TensorView:
    """The view described by an object's own facts; InvalidProblem for facts that no memory can have.

    Whether the memory exists, and all of it, cannot be checked.
    """
    pointer, shape, strides, element, device, readonly, capacity, _ = view
    bounds = (0, 0) if capacity is None else capacity
    tuples = type(shape) is type(strides) is type(bounds) is tuple
    numbers: tuple[Any, ...] = (pointer, *shape, *strides, *bounds) if tuples else (None,)
    if len(numbers) > _MOST or set(map(type, numbers)) != {int} or min(numbers) <= -_FAR or max(numbers) >= _FAR:
        got = f"{short_repr(pointer)}, {short_repr(shape)}, {short_repr(strides)} and {short_repr(capacity)}"
        raise InvalidProblem(f"{name!r} must have address, shape, strides and buffer in ints, got {got}")
    if len(shape) != len(strides) or min(shape, default=0) < 0 or len(bounds) != 2:
        got = f"shape {short_repr(shape)}, strides {short_repr(strides)} and buffer {short_repr(capacity)}"
        raise InvalidProblem(f"{name!r} has {got}; needs extents >= 0, a stride for each, and two numbers or None")
    if device != "host" and not is_device(device):
        raise InvalidProblem(f"{name!r} must be on 'host' or 'cuda:N', got {short_repr(device)}")
    if type(element) is not ElementKind or type(readonly) is not bool:
        view = view._replace(element=ElementKind.of(element, f"element of {name!r}"), readonly=readonly is not False)
    low, high = byte_range(view)
    if not 0 <= low <= high <= _MEMORY:
        layout = f"shape {short_repr(shape)} and strides {short_repr(strides)}"
        raise InvalidProblem(f"{name!r} at {pointer:#x} has {layout}, which are not in {_MEMORY:#x} bytes of memory")
    fits = not strides or (min(strides) > -_MEMORY and max(strides) < _MEMORY)
    return view if fits else view._replace(strides=_settled(shape, strides))


def _settled(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides as 64-bit ints, with those of axes of extent 1 normalised."""
    return tuple(0 if extent <= 1 or 0 in shape else s for extent, s in zip(shape, strides, strict=True))


def check_span(view: TensorView, name: str) -> None:
    """Raise BufferTooSmall if the view addresses elements outside its buffer; a buffer of unknown size passes."""
    if view.capacity is None:
        return
    before, after = view.capacity
    low, high = _span(view.shape, view.strides)
    if low == high or (before + low >= 0 and high <= after):
        return
    got = max(0, before + after)
    layout = f"{name!r} of shape {view.shape} and strides {view.strides}"
    if before + low < 0:
        message = f"{layout} starts {-before - low} elements before its buffer"
        raise BufferTooSmall(message, needed=max(before + high, got) - before - low, got=got)
    raise BufferTooSmall(f"{layout} addresses elements beyond its buffer", needed=before + high, got=got)


def byte_range(view: TensorView) -> tuple[int, int]:
    """Half-open range of addresses that the view may touch, gaps included; empty without elements."""
    low, high = _span(view.shape, view.strides)
    itemsize = ELEMENTS[view.element].bytes
    return view.pointer + low * itemsize, view.pointer + high * itemsize


def overlaps_itself(view: TensorView) -> bool:
    """Whether two indices address the same element, so that writes through the view would race."""
    return _self_overlaps(view.shape, view.strides)


def same_view(a: TensorView, b: TensorView) -> bool:
    """Whether both address the same elements in the same order; axes of extent 1 are ignored."""
    if a.pointer != b.pointer or a.element != b.element or a.device != b.device:
        return False
    return (a.shape == b.shape and a.strides == b.strides) or _layout(a) == _layout(b)


def may_share(a: TensorView, b: TensorView) -> bool:
    """Whether the byte ranges intersect; False is certain, True is not."""
    if a.device != b.device:
        return False
    (a_low, a_high), (b_low, b_high) = byte_range(a), byte_range(b)
    return max(a_low, b_low) < min(a_high, b_high)


def _layout(view: TensorView) -> tuple[tuple[int, int], ...]:
    strides = (0,) * len(view.shape) if 0 in view.shape else view.strides
    return tuple((n, s) for n, s in zip(view.shape, strides, strict=True) if n != 1)
