"""A problem of the matmul family: a product of two arrays, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baracuda.runtime import KernelSku, MatmulPlan, Schedule

from .map import MapProblem
from .subject import Subject


class MatmulProblem(MapProblem, family="matmul"):
    """Dims of one axis each."""

    walks_space = False

    @property
    def size(self) -> int:
        """Elements of all arrays; none of an empty result."""
        over = [self.spec.arguments[name].over for name in self.arguments]
        of_all = sum(map(self.space.count, over))
        return 0 if self.plan.sizes_of(self.descriptor).is_empty else of_all

    @classmethod
    def limits(cls, subject: Subject) -> tuple[str, ...]:
        """A tile and its neighbour, the depth of a buffer, and of all of them."""
        sides = ("tall < block_m", "tall < 2 * block_m", "wide < block_n", "depth < buffer", "depth < stages * buffer")
        return (*super(MapProblem, cls).limits(subject), *sides)

    def numbers(self, descriptor: Any, sku: KernelSku) -> Mapping[str, Any]:
        assert isinstance(sku.schedule, Schedule)
        plan: type[MatmulPlan[Any]] = self.subject.plan
        sizes, numbers = plan.sizes_of(descriptor), dict(sku.schedule.numbers)
        tall, wide = (sizes.columns, sizes.rows) if numbers.get("swapped") else (sizes.rows, sizes.columns)
        of_tile = {"tall": tall, "wide": wide, "depth": sizes.depth, "buffer": numbers.get("block_k", 64)}
        return {**vars(descriptor), **of_tile, **numbers}
