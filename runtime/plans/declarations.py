"""What a plan declares besides its arrays: which fields follow from them, and whose gradient it computes.

Frontends use this to build descriptors from arrays and to wire a forward to its backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple


class Extent(NamedTuple):
    """How an input determines a descriptor field: by its whole shape, by its axes from `axis` on but for the last
    `behind`, or by its extent along `axis` minus `less`, divided by `times` and the fields `by`.

    If several inputs determine a field, the first present one wins.
    """

    field: str
    tensor: str
    axis: int | None = None
    less: int = 0
    behind: int | None = None
    times: int = 1
    by: tuple[str, ...] = ()

    def of(self, shape: tuple[int, ...], fields: Mapping[str, int]) -> int | tuple[int, ...] | None:
        """The field's value; None where the shape has too few axes for it."""
        if self.axis is None:
            return shape
        if self.behind is not None:
            return shape[self.axis : len(shape) - self.behind] if len(shape) >= self.axis + self.behind else None
        if len(shape) < self.least_rank:
            return None
        return (shape[self.axis] - self.less) // max(1, self.times * prod(fields[name] for name in self.by))

    @property
    def least_rank(self) -> int:
        """The fewest axes that the input may have."""
        axis = self.axis or 0
        return axis + self.behind if self.behind is not None else -axis if axis < 0 else axis + 1


class Gradient(NamedTuple):
    """The op that a backward differentiates. Tensors with equal names are the same in both."""

    of: str
    cotangents: Mapping[str, str]  # input here -> output there
    wrt: Mapping[str, str]  # output here -> input there
