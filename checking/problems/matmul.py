"""A problem of the matmul family: products of two arrays, and what is made of them."""

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
    def split(self) -> float:
        """The least TF32 number, to which the second part of a float is cut off, or the float itself is rounded."""
        return 2.0**-136 if self.plan.precision_guarantee.math_precision in ("tf32x3", "tf32") else 0.0

    @property
    def rounded(self) -> float:
        """The unit roundoff of a TF32 number, where factors are rounded to one."""
        return 2.0**-11 if self.plan.precision_guarantee.math_precision == "tf32" else 0.0

    @property
    def least(self) -> float:
        """The least normal number of 8-bit floats: what is smaller has its exponent."""
        is_byte = self.plan.precision_guarantee.math_precision == "f8"
        return max([kind.row.smallest_normal for kind in self.plan.multiplied(self.element)]) if is_byte else 0.0

    @property
    def size(self) -> int:
        """Elements of all arrays; none if no result has any."""
        sizes = {name: self.space.count(self.spec.arguments[name].over) for name in self.arguments}
        return sum(sizes.values()) if any(sizes[name] for name in self.written) else 0

    @classmethod
    def limits(cls, subject: Subject) -> tuple[str, ...]:
        """A tile and its neighbour, the depth of a buffer, and of all of them; of several passes, a pack."""
        if subject.plan.PASSES:
            return (*super(MapProblem, cls).limits(subject), "last < pack")
        sides = ("tall < block_m", "tall < 2 * block_m", "wide < block_n", "depth < buffer", "depth < stages * buffer")
        return (*super(MapProblem, cls).limits(subject), *sides)

    def numbers(self, descriptor: Any, sku: KernelSku) -> Mapping[str, Any]:
        assert isinstance(sku.schedule, Schedule)
        plan: type[MatmulPlan[Any]] = self.subject.plan
        if plan.PASSES:
            return super().numbers(descriptor, sku)
        sizes, numbers = plan.sizes_of(descriptor), dict(sku.schedule.numbers)
        tall, wide = (sizes.columns, sizes.rows) if numbers.get("swapped") else (sizes.rows, sizes.columns)
        itemsize = plan.multiplied(sku.element)[0].row.bytes
        of_tile = {"tall": tall, "wide": wide, "depth": sizes.depth, "buffer": numbers.get("block_k", 128 // itemsize)}
        return {**vars(descriptor), **of_tile, **numbers}
