"""From whatever a caller calls a stream to the raw handle that a launch takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from .errors import InvalidProblem
from .tensor import TensorView, by_ancestry, view

_ACCEPTED = "a raw handle, a CuPy or torch stream, or an object whose __cuda_stream__ is (version, handle)"
_HANDLES = {"cupy.cuda.stream._BaseStream": "ptr", "torch.cuda.streams.Stream": "cuda_stream"}


def raw_stream(stream: object, arrays: Iterable[object]) -> int:
    """Handle of `stream`; for None, of the stream that the arrays' library currently uses on their device.

    `stream` may be None, a raw handle, a CuPy or torch stream, or anything with `__cuda_stream__`. `arrays`
    may be views or what `view` accepts; None among them stands for an absent tensor. Arrays on the host, and
    arrays of libraries without a current stream (JAX, bare DLPack), give 0, the legacy default stream. Raises
    InvalidProblem for any other stream, and when two libraries disagree.
    """
    if type(stream) is int:
        if stream < 0:
            raise InvalidProblem(f"stream handle {stream} is negative; pass {_ACCEPTED}")
        return stream
    return current_stream(arrays)() if stream is None else _handle(stream)


def current_stream(arrays: Iterable[object]) -> Callable[[], int]:
    """What gives the stream that the arrays' library currently uses, whenever it is asked; keeps no array alive.

    Its answer is that of `raw_stream` without a stream, for these arrays and for others of their types and devices.
    """
    devices: dict[Callable[[int], int], int] = {}
    for array in arrays:
        if array is None:
            continue
        seen = array if type(array) is TensorView else view(array, "array")
        if seen.device == "host":
            continue
        kind = type(seen.owner)
        current = _CURRENT_OF[kind] if kind in _CURRENT_OF else _remember(kind)
        if current is not None:
            devices.setdefault(current, int(seen.device[5:]))
    if len(devices) > 1:
        return lambda: _agreed(devices)
    return next((partial(current, device) for current, device in devices.items()), int)


def _agreed(devices: Mapping[Callable[[int], int], int]) -> int:
    handles = {current: current(device) for current, device in devices.items()}
    if len(set(handles.values())) > 1:
        each = ", ".join(f"{current.__name__[1:]} {handle:#x}" for current, handle in handles.items())
        raise InvalidProblem(f"the arrays' libraries are on different current streams ({each}); pass stream=")
    return next(iter(handles.values()))


def _handle(stream: object) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    attribute = by_ancestry(type(stream), _HANDLES)
    if protocol is None and attribute is None:
        kind = f"{type(stream).__module__}.{type(stream).__qualname__}"
        raise InvalidProblem(f"stream is of type {kind}; pass None, {_ACCEPTED}")
    try:
        if protocol is None:
            return int(getattr(stream, str(attribute)))
        _version, handle = protocol() if callable(protocol) else protocol
        return int(handle)
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"stream {stream!r} gives no handle: {error}; pass {_ACCEPTED}") from error


def _torch(device: int) -> int:
    return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))


def _cupy(device: int) -> int:
    return int(sys.modules["cupy"].cuda.get_current_stream(device).ptr)


_CURRENT = {"torch.Tensor": _torch, "cupy.ndarray": _cupy}
_CURRENT_OF: dict[type, Callable[[int], int] | None] = {}  # by array type, filled on sight


def _remember(kind: type) -> Callable[[int], int] | None:
    return _CURRENT_OF.setdefault(kind, by_ancestry(kind, _CURRENT))
