"""Converts whatever a caller passes as a stream to the raw handle that a launch takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import index
from typing import Any

from ..arrays.tensor import TensorView, by_ancestry, view
from ..errors import InvalidProblem
from ..values import kind_of, one_line, short_repr

_ACCEPTED = "a raw handle, a CuPy or torch stream, or an object whose __cuda_stream__ is (version, handle)"
_HANDLES_END = 1 << 64
_HANDLES = {"cupy.cuda.stream._BaseStream": "ptr", "torch.cuda.streams.Stream": "cuda_stream"}


def raw_stream(stream: object, arrays: Iterable[object]) -> int:
    """Handle of `stream`; for None, that of the current stream of the arrays' library on their device.

    `stream` may be None, a raw handle, a CuPy or torch stream, or anything with `__cuda_stream__`. `arrays` are views
    or what `view` accepts; None stands for an absent tensor. Arrays on the host, and arrays of libraries without a
    current stream (JAX, bare DLPack), give 0, the legacy default stream. Raises InvalidProblem for any other stream,
    and if two libraries disagree.
    """
    if type(stream) is int:
        if not 0 <= stream < _HANDLES_END:
            raise InvalidProblem(f"stream handle {short_repr(stream)} is negative or beyond 64 bits; pass {_ACCEPTED}")
        return stream
    return current_stream(arrays)() if stream is None else _handle(stream)


def current_stream(arrays: Iterable[object]) -> Callable[[], int]:
    """A function that returns the current stream of the arrays' library; keeps no array alive.

    It answers as `raw_stream` without a stream, for these arrays and others of the same types and devices.
    """
    devices: dict[str, int] = {}
    for array in arrays:
        if array is None:
            continue
        tensor = array if type(array) is TensorView else view(array, "array")
        if tensor.device == "host":
            continue
        kind = type(tensor.owner)
        library = _LIBRARY_OF[kind] if kind in _LIBRARY_OF else _remember(kind)
        if library is not None:
            devices.setdefault(library, int(tensor.device[5:]))
    current = {library: partial(_CURRENT[library](), device) for library, device in devices.items()}
    if len(current) > 1:
        return lambda: _agreed(current)
    return next(iter(current.values()), int)


def _agreed(current: Mapping[str, Callable[[], int]]) -> int:
    handles = {library: ask() for library, ask in current.items()}
    if len(set(handles.values())) > 1:
        each = ", ".join(f"{library} {handle:#x}" for library, handle in handles.items())
        raise InvalidProblem(f"the arrays' libraries are on different current streams ({each}); pass stream=")
    return next(iter(handles.values()))


def _handle(stream: object) -> int:
    try:
        handle = _handle_of(stream)
    except Exception as error:  # an object's own protocol methods may raise anything
        reason = one_line(error) or type(error).__name__
        raise InvalidProblem(f"stream {short_repr(stream)} gives no handle: {reason}; pass {_ACCEPTED}") from error
    if handle is None:
        raise InvalidProblem(f"stream is of type {kind_of(stream)}; pass None, {_ACCEPTED}")
    if not 0 <= handle < _HANDLES_END:
        got = f"gives {short_repr(handle)}, no handle of 64 bits"
        raise InvalidProblem(f"stream {short_repr(stream)} {got}; pass {_ACCEPTED}")
    return handle


def _handle_of(stream: Any) -> int | None:
    protocol = getattr(stream, "__cuda_stream__", None)
    attribute = by_ancestry(type(stream), _HANDLES)
    if protocol is None:
        return None if attribute is None else index(getattr(stream, attribute))
    _version, handle = protocol() if callable(protocol) else protocol
    return index(handle)


# What gives a library's current stream on a device, found once: asking it is a part of every launch.
def _torch() -> Callable[[int], int]:
    current: Callable[[int], int] = sys.modules["torch"]._C._cuda_getCurrentRawStream
    return current


def _cupy() -> Callable[[int], int]:
    current = sys.modules["cupy"].cuda.get_current_stream
    return lambda device: int(current(device).ptr)


_CURRENT = {"torch": _torch, "cupy": _cupy}
_LIBRARIES = {"torch.Tensor": "torch", "cupy.ndarray": "cupy"}
_LIBRARY_OF: dict[type, str | None] = {}  # by array type, filled on sight


def _remember(kind: type) -> str | None:
    return _LIBRARY_OF.setdefault(kind, by_ancestry(kind, _LIBRARIES))
