"""Where tensors lie under load: in one piece of memory per stream, at other addresses each time, over poison."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, TensorView
from baracuda.runtime.arrays.axes import contiguous_strides
from baracuda.runtime.arrays.tensor import view

from ..problems.problem import Problem
from ..trials.memory import packed_along

_ALIGNED = 512  # bytes, of a slab
_GAPS = 8  # a tensor begins up to so many steps of two units behind the one before
_UNITS = (1, 16, 256)  # bytes that addresses are odd multiples of; no less than a tensor's element
_SCRATCH = 16  # bytes that a workspace is aligned to


class Slab:
    """Memory of one stream; each run overwrites what the one before left there. `library` is NumPy or CuPy."""

    def __init__(self, library: Any, nbytes: int) -> None:
        whole = library.empty(nbytes + _ALIGNED, np.uint8)
        begin = -view(whole, "slab").pointer % _ALIGNED
        self.library, self.bytes = library, whole[begin : begin + nbytes]
        self.pointer = view(self.bytes, "slab").pointer

    def words(self, offset: int, tensor: Tensor) -> Any:
        """A tensor's bits, as an array of the slab's library."""
        part = self.bytes[offset : offset + tensor.nbytes].view(tensor.word)
        strides = [stride * tensor.kind.row.bytes for stride in tensor.strides]
        parts = tensor.parts
        return self.library.lib.stride_tricks.as_strided(
            part, (*tensor.shape, *parts), (*strides, *[part.itemsize] * len(parts))
        )


@dataclass(frozen=True)
class Tensor:
    """An argument as it lies in memory, without gaps."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: ElementKind

    @property
    def nbytes(self) -> int:
        return int(prod(self.shape) * self.kind.row.bytes)

    @property
    def word(self) -> np.dtype[Any]:
        return np.dtype(f"u{min(8, self.kind.row.bytes)}")

    @property
    def parts(self) -> tuple[int, ...]:
        """The words of an element, where there are several."""
        return (2,) if self.kind.row.bytes > 8 else ()

    def bits(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Values as `Slab.words` has them."""
        flat = np.ascontiguousarray(values).reshape(-1)
        return flat.view(self.word).reshape((*self.shape, *self.parts))


class Places:
    """Draws where a problem's tensors lie: at any address for which the same kernel serves them."""

    def __init__(self, problem: Problem, device: str) -> None:
        kinds, self.device = problem.stored_types(), device
        self.tensors = {name: _tensor(problem, name, kinds[name]) for name in problem.arguments}
        self.scratch: int = problem.plan.workspace_bytes
        self.units = tuple(unit for unit in _UNITS if self._serves(problem, unit)) or (_ALIGNED,)

    @property
    def most(self) -> int:
        """Bytes that are always enough."""
        room = (2 * _GAPS + 2) * _ALIGNED
        return sum(tensor.nbytes + room for tensor in self.tensors.values()) + self.scratch + room

    def draw(self, rng: random.Random, unit: int) -> tuple[dict[str, int], int]:
        """Offsets by argument, "" for the workspace, and where the last one ends."""
        offsets, end = {}, 0
        for name in rng.sample([*self.tensors, ""], len(self.tensors) + 1):
            tensor = self.tensors.get(name)
            step = max(unit, tensor.kind.row.bytes) if tensor else _SCRATCH
            offsets[name] = (-(-end // (2 * step)) + rng.randrange(_GAPS)) * 2 * step + step
            end = offsets[name] + (tensor.nbytes if tensor else self.scratch)
        return offsets, end

    def bind(self, problem: Problem, unit: int) -> None:
        """Compile and load what runs for tensors at multiples of `unit`."""
        problem.plan.bind(**self._somewhere(problem, unit))

    def arguments(self, problem: Problem, slab: Slab, offsets: Mapping[str, int]) -> dict[str, Any]:
        """What `run` is given, the workspace included."""
        given: dict[str, Any] = dict.fromkeys(problem.spec.arguments)
        for name, tensor in self.tensors.items():
            given[name] = problem.passed(name, self._view(slab.pointer + offsets[name], tensor, slab.bytes))
        whole = Tensor((self.scratch,), (1,), ElementKind.U8)
        return given | {
            "workspace": self._view(slab.pointer + offsets[""], whole, slab.bytes) if self.scratch else None
        }

    def _view(self, pointer: int, tensor: Tensor, owner: object) -> TensorView:
        return TensorView(pointer, tensor.shape, tensor.strides, tensor.kind, self.device, False, None, owner)

    def _serves(self, problem: Problem, unit: int) -> bool:
        """Whether the problem's kernel serves tensors at multiples of so many bytes."""
        verdict = problem.plan.can_implement(**self._somewhere(problem, unit))
        return bool(verdict) and verdict.sku == problem.plan.sku

    def _somewhere(self, problem: Problem, unit: int) -> dict[str, Any]:
        """Arguments that only look like arrays, at some such addresses."""
        return self.arguments(problem, Slab(np, 0), self.draw(random.Random(0), unit)[0])


def _tensor(problem: Problem, name: str, kind: ElementKind) -> Tensor:
    shape, axis = problem.shape_of(name), problem.packed_axis(name)
    if axis is None:
        return Tensor(shape, tuple(contiguous_strides(shape)), kind)
    return Tensor(shape, packed_along(axis, "contiguous", shape, 16 // problem.element.row.bytes)[0], kind)
