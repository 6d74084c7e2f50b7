"""Scratch memory: the caller's, so that a plan never allocates and can be captured in a graph."""

from __future__ import annotations

from .errors import MisalignedOperand, WorkspaceTooSmall
from .tensor import TensorView, byte_range, overlaps_itself, view

ALIGNMENT = 16  # bytes; every part of a workspace starts at a multiple of it

Workspace = object  # None, or any one-dimensional array on the device of the plan's arrays


def take_workspace(plan: str, workspace: Workspace, needed: int) -> TensorView | None:
    """View of a workspace of at least `needed` bytes; None when none is needed."""
    if needed == 0:
        return None
    if workspace is None:
        raise WorkspaceTooSmall(f"{plan}: workspace", needed=needed, got=0)
    there = view(workspace, "workspace")
    low, high = byte_range(there)
    if high - low < needed or overlaps_itself(there):
        raise WorkspaceTooSmall(f"{plan}: workspace", needed=needed, got=high - low)
    if there.pointer % ALIGNMENT:
        raise MisalignedOperand(f"{plan}: workspace must start at a multiple of {ALIGNMENT}, got {there.pointer:#x}")
    return there


def rounded(nbytes: int) -> int:
    """`nbytes` up to the next multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
