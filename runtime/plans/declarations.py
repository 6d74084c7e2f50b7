"""What a plan declares beside its arrays: where they show the descriptor's fields, and whose gradient it computes.

Frontends are made of these: they see arrays and find the descriptor, and wire a forward to its backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """A field that an input shows: the input's whole shape, or, along `axis`, `less` than its extent there.

    Of a field that several show, the first that takes part tells it.
    """

    field: str
    tensor: str
    axis: int | None = None
    less: int = 0


@dataclass(frozen=True, slots=True)
class Gradient:
    """The op that a backward differentiates. Its tensors and the backward's that are called alike are the same."""

    of: str
    cotangents: Mapping[str, str]  # input here -> output there
    wrt: Mapping[str, str]  # output here -> input there
