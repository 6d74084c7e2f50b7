"""What a plan declares of a matrix product that is one pass of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MatmulPass:
    """The arrays that a product reads and writes, and the constants of `MatmulPlan` of the same names, in capitals.

    Arrays are arguments of the plan, or in the workspace: those of its `HELD`. Kernels of a `shared` pass are the same
    for all of its `kinds`; passes of one `loop` run for each chunk of the descriptor's `_chunks`.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    shared: bool = False
    loop: int = 0
    factors: tuple[str, str] = ("", "")
    second: str = ""
    dims: Mapping[str, str] | None = None
    sizes: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    span: tuple[str, str, bool] | None = None
    weights: Mapping[str, tuple[tuple[str, int], ...]] | None = None
    part: str = ""
    band: str = ""


@dataclass(frozen=True, slots=True)
class MadePass(MatmulPass):
    """What stands in for all passes where there are few rows: a product that makes its right factor while it runs.

    It also says what the factor's program reads at computed places, the dims whose index it reads, the array of codes,
    and whether the factor is `T((code - zero) * scale)`.
    """

    placed: Mapping[str, tuple[str, ...]] | None = None
    indices: tuple[str, ...] = ()
    codes: str = ""
    paired: bool = False
