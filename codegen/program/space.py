"""The problem that a program is evaluated on.

Arrays have one axis per dim of the scope, in the scope's order, with extent 1 where a value does not vary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Space:
    """The problem a program is evaluated on: the extent of each dim, which optional tensors are there.

    `real` is the type of constants: sqrt(2.0) of a long double program has all its bits.
    """

    extents: dict[str, int]
    present: frozenset[str] = frozenset()
    real: type = float

    def axes(self, dims: Iterable[str]) -> tuple[int, ...]:
        names = list(self.extents)
        return tuple(names.index(d) for d in dims)

    def shape(self, dims: Iterable[str]) -> tuple[int, ...]:
        kept_dims = set(dims)
        return tuple(n if d in kept_dims else 1 for d, n in self.extents.items())

    def index(self, dim: str) -> Any:
        return np.arange(self.extents[dim]).reshape(self.shape([dim]))

    def count(self, dims: Iterable[str]) -> int:
        return int(np.prod([self.extents[d] for d in dims], dtype=object))
