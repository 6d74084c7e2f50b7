"""What a plan declares of each pass of a program that takes several walks over cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .geometry import Group


@dataclass(frozen=True, slots=True)
class MapPass:
    """The arrays that a pass reads and writes, and the constants of `MapPlan` of the same names, in capitals.

    Arrays are arguments of the plan, or in the workspace: those of its `HELD`, which an earlier pass leaves. Kernels of
    a `shared` pass are the same for all of its `kinds`; passes of one `loop` run for each chunk of the descriptor's
    `_chunks`. What is None is as in the plan; `sum_outputs` are all that a pass with sums writes.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    shared: bool = False
    loop: int = 0
    space: tuple[Group, ...] | None = None
    summed: tuple[str, ...] = ()
    placed: Mapping[str, tuple[str, ...]] | None = None
    indices: tuple[str, ...] = ()
    cell_indices: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    sum_bytes: tuple[int, ...] = ()
    sum_outputs: tuple[str, ...] | None = None
    copies: Mapping[str, str] | None = None
    lists: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    divisors: tuple[str, ...] = ()
    fills: tuple[tuple[str, str], ...] = ()
