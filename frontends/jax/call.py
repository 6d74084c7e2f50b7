"""A call of an op without its arrays: what jax keeps in a traced program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import baracuda.runtime as rt


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """A descriptor, the inputs that are present, and the results: outputs, then updated inputs."""

    plan: type[rt.Plan[Any]]
    descriptor: Any
    present: tuple[str, ...]
    outputs: tuple[tuple[str, rt.ElementKind], ...]

    def __repr__(self) -> str:
        return repr(self.descriptor)  # as a printed program shows it

    @property
    def element(self) -> rt.ElementKind:
        return rt.ElementKind(self.descriptor.element)

    @property
    def names(self) -> list[str]:
        """Names of the results."""
        return [name for name, _ in self.outputs]

    def results(self) -> Iterator[tuple[str, tuple[int, ...], Any]]:
        """Name, shape and NumPy dtype of the results."""
        shapes = self.plan.shapes_of(self.descriptor)
        for name, kind in self.outputs:
            yield name, shapes[name][0], kind.row.numpy
