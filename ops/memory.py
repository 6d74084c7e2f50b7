"""Allocation of results with the library of the first input, on its device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

import baracuda.runtime as rt
from baracuda.runtime.arrays.tensor import by_ancestry

Allocate = Callable[[Sequence[int], rt.ElementKind], Any]


def allocator(like: object, device: str) -> Allocate:
    """A function that makes an uninitialised array like `like`: with torch or CuPy, NumPy on the host, else CuPy."""
    if by_ancestry(type(like), {"torch.Tensor": True}):
        return _of_torch(device)
    return _of_numpy if device == "host" else _of_cupy(int(device.removeprefix("cuda:")))


def _of_numpy(shape: Sequence[int], element: rt.ElementKind) -> Any:
    try:
        return np.empty(shape, element.row.numpy)
    except (MemoryError, ValueError) as error:  # more than there is, or than NumPy counts
        raise rt.OutOfMemory(f"no memory for an output of shape {tuple(shape)} and {element}: {error}") from None


def _of_torch(device: str) -> Allocate:
    import torch

    target = "cpu" if device == "host" else device
    return lambda shape, element: torch.empty(shape, dtype=getattr(torch, str(element.row.numpy)), device=target)


def _of_cupy(ordinal: int) -> Allocate:
    import cupy

    def allocate(shape: Sequence[int], element: rt.ElementKind) -> Any:
        current = cupy.cuda.Device().id == ordinal
        with nullcontext() if current else cupy.cuda.Device(ordinal):
            try:
                return cupy.empty(shape, element.row.numpy)
            except ValueError:
                raise rt.Unsupported(f"CuPy has no arrays of {element.row.numpy}; pass tensors of torch") from None

    return allocate
