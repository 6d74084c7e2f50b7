"""What a plan declares besides its arrays: which fields follow from them, and whose gradient it computes.

Frontends use this to build descriptors from arrays and to wire a forward to its backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """How an input determines a descriptor field: by its whole shape, or by its extent along `axis` minus `less`.

    If several inputs determine a field, the first present one wins.
    """

    field: str
    tensor: str
    axis: int | None = None
    less: int = 0


@dataclass(frozen=True, slots=True)
class Gradient:
    """The op that a backward differentiates. Tensors with equal names are the same in both."""

    of: str
    cotangents: Mapping[str, str]  # input here -> output there
    wrt: Mapping[str, str]  # output here -> input there
