"""Scratch memory, owned by the caller: plans never allocate and can be captured in graphs."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ..errors import InvalidProblem, MisalignedOperand, WorkspaceTooSmall
from .axes import coalesce
from .tensor import TensorView, check_span, view

ALIGNMENT = 16  # bytes; every part of a workspace starts at a multiple of it

Workspace = object  # None, or any contiguous array on the device of the plan's arrays


def take_workspace(workspace: Workspace, needed: int) -> TensorView | None:
    """View of a workspace of at least `needed` bytes; None if none is needed.

    It must be contiguous: kernels write it from its first byte on, whatever its shape and dtype.
    """
    if needed == 0:
        return None
    if workspace is None:
        raise _too_small(needed, 0)
    buffer = view(workspace, "workspace")
    if buffer.readonly:
        raise InvalidProblem("workspace is written to, got a read-only array")
    if not _is_one_run(buffer.shape, buffer.strides):
        raise InvalidProblem(f"workspace must be contiguous, got shape {buffer.shape} and strides {buffer.strides}")
    check_span(buffer, "workspace")
    if (got := prod(buffer.shape) * buffer.element.row.bytes) < needed:
        raise _too_small(needed, got)
    if buffer.pointer % ALIGNMENT:
        raise MisalignedOperand(f"workspace must start at a multiple of {ALIGNMENT}, got {buffer.pointer:#x}")
    return buffer


@lru_cache(maxsize=256)
def _is_one_run(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether it is contiguous in row-major order."""
    extents, (steps,) = coalesce(shape, (strides,))
    return len(extents) == 1 and steps == (1,)


def _too_small(needed: int, got: int) -> WorkspaceTooSmall:
    error = WorkspaceTooSmall("workspace", needed=needed, got=got)
    error.args = (f"workspace: needs {needed} bytes, got {got or 'none'}",)
    return error


def rounded(nbytes: int) -> int:
    """`nbytes` rounded up to a multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
