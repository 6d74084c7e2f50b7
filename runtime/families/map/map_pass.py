"""What a plan declares of each pass of a program that takes several walks over cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...arrays.arguments import Argument
from .geometry import Group


@dataclass(frozen=True, slots=True)
class MapPass:
    """The constants of `MapPlan` of the same names, in capitals, for one pass.

    Its tensors are arguments of the whole, and arrays in the workspace that an earlier pass leaves for it.
    """

    tensors: tuple[Argument, ...]
    axes: Mapping[str, tuple[Group, ...]]
    space: tuple[Group, ...]
    summed: tuple[str, ...] = ()
    placed: Mapping[str, tuple[str, ...]] | None = None
    indices: tuple[str, ...] = ()
    cell_indices: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    sum_bytes: tuple[int, ...] = ()
    sum_outputs: tuple[str, ...] = ()
    copies: Mapping[str, str] | None = None
