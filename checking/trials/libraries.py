"""Arrays of made-up libraries with devices and streams, whose memory is not there: for plans that only launch.

The runtime tells libraries by the names of their classes, and reads what is read here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from baracuda.runtime import TensorView

Make = Callable[[TensorView], Any]
_FAR = 1 << 40  # elements
_current = {"cupy": 0, "torch": 0}  # the current stream of each library


class _CupyArray:
    """Read as `cupy.ndarray`."""

    def __init__(self, view: TensorView) -> None:
        size = view.element.row.bytes
        before, after = view.capacity or (0, _FAR)
        memory = SimpleNamespace(ptr=view.pointer - before * size, size=(before + after) * size)
        self.data = SimpleNamespace(mem=memory, ptr=view.pointer, device_id=int(view.device.partition(":")[2]))
        self.dtype, self.shape = view.element.row.numpy, view.shape
        self.strides = tuple(s * size for s in view.strides)


@dataclass(frozen=True)
class _TorchType:
    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True)
class _TorchDevice:
    type: str
    index: int


class _TorchTensor:
    """Read as `torch.Tensor`, which lies within its storage, whatever the view says."""

    def __init__(self, view: TensorView) -> None:
        self._view = view
        self.shape, self.dtype = view.shape, _TorchType(str(view.element.row.numpy))
        self.device = _TorchDevice("cuda", int(view.device.partition(":")[2]))

    def data_ptr(self) -> int:
        return self._view.pointer

    def stride(self) -> tuple[int, ...]:
        return self._view.strides

    def storage_offset(self) -> int:
        return _FAR

    def untyped_storage(self) -> Any:
        return SimpleNamespace(nbytes=lambda: 2 * _FAR * self._view.element.row.bytes)

    def is_neg(self) -> bool:
        return False

    def is_conj(self) -> bool:
        return False


class _TensorGuards:
    """Read as torch's: whether tensors are as the first ones in all but their addresses and storages."""

    def __init__(self, *tensors: _TorchTensor, dynamic_dims_sizes: Any, dynamic_dims_strides: Any) -> None:
        if len({id(tensor) for tensor in tensors}) < len(tensors):
            raise TypeError("a tensor is given twice")
        self._facts = list(map(self._facts_of, tensors))

    def check(self, *tensors: object) -> bool:
        return list(map(self._facts_of, tensors)) == self._facts

    @staticmethod
    def _facts_of(tensor: object) -> object:
        return isinstance(tensor, _TorchTensor) and (tensor.dtype, tensor.device, tensor.shape, tensor.stride())


_CupyArray.__module__, _CupyArray.__qualname__ = "cupy", "ndarray"
_TorchTensor.__module__, _TorchTensor.__qualname__ = "torch", "Tensor"
LIBRARIES: Mapping[str, Make] = {"views": lambda view: view, "cupy": _CupyArray, "torch": _TorchTensor}


@contextmanager
def libraries() -> Iterator[None]:
    """The made-up libraries in the place of what is imported as CuPy and torch."""
    cuda = SimpleNamespace(get_current_stream=lambda device: SimpleNamespace(ptr=_stream("cupy", device)))
    guards = SimpleNamespace(guards=SimpleNamespace(TensorGuards=_TensorGuards))
    ours: dict[str, Any] = {
        "cupy": SimpleNamespace(cuda=cuda),
        "torch": SimpleNamespace(
            _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: _stream("torch", device), _dynamo=guards)
        ),
    }
    before = {name: sys.modules.get(name) for name in ours}
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


@contextmanager
def current_stream(base: int) -> Iterator[None]:
    """On device d, `base` + d is the libraries' current stream."""
    before = dict(_current)
    _current.update(dict.fromkeys(_current, base))
    try:
        yield
    finally:
        _current.update(before)


def _stream(library: str, device: int) -> int:
    return _current[library] + device
