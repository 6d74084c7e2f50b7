"""The callback of XLA: a plan, run on XLA's buffers and stream."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import baracuda.runtime as rt
from baracuda.ops.call import element_of
from baracuda.runtime.arrays.axes import contiguous_strides

_APART = 4096  # bytes, and a multiple of the alignment of XLA's buffers
_CUDA = 2  # kDLCUDA

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Place(NamedTuple):
    """An argument of the plan: everything about its view that is known before XLA allocates it."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: rt.ElementKind
    readonly: bool
    size: int

    @classmethod
    def of(cls, name: str, like: Any, readonly: bool) -> _Place:
        shape = tuple(like.shape)
        return cls(name, shape, contiguous_strides(shape), element_of(like.dtype), readonly, prod(shape))

    def at(self, pointer: int, device: str, owner: object) -> rt.TensorView:
        _, shape, strides, element, readonly, size = self
        return rt.TensorView(pointer, shape, strides, element, device, readonly, (0, size), owner)


class Launch:
    """A callback of `buffer_callback`: inputs and results are arguments of `plan` by these names.

    A result named like an input shares its memory and is updated in place.
    """

    def __init__(self, plan: Any, names: Sequence[str], inputs: Sequence[Any], results: Sequence[Any]) -> None:
        self._plan = plan
        operands = [(array, True) for array in inputs] + [(array, False) for array in results]
        self._places = [_Place.of(name, *rest) for name, rest in zip(names, operands, strict=True)]

    def load(self, device: str) -> None:
        """Check everything but addresses, and load the kernels that a call will need on `device`."""
        views, pointer = {}, _APART
        for place in self._places:
            views[place.name] = place.at(pointer, device, None)
            pointer += _APART * (place.size * place.element.row.bytes // _APART + 2)
        self._plan.bind(**views, stream=0)

    def __call__(self, context: Any, results: Sequence[Any], *inputs: Any) -> None:
        buffers = (*inputs, *results)
        kind, ordinal = buffers[0].__dlpack_device__()
        device, stream = (f"cuda:{ordinal}", context.stream) if kind == _CUDA else ("host", 0)
        views = {p.name: p.at(_address(b), device, b) for p, b in zip(self._places, buffers, strict=True)}
        self._plan.run(**views, stream=stream)


def _address(buffer: Any) -> int:
    # Unlike __cuda_array_interface__, DLPack has every type, on every device.
    capsule = buffer.__dlpack__()  # holds a DLManagedTensor, whose first word it is
    return ctypes.c_void_p.from_address(_pointer_of(capsule, b"dltensor")).value or 0
