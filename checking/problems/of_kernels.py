"""What kernels of a family are tested on and by, beside what its specs say."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from baracuda.runtime import KernelSku, Schedule

from .subject import Subject

if TYPE_CHECKING:
    from .problem import Problem


class OfKernels:
    """What problems of a family add; each has a default."""

    rows_apart: ClassVar[bool] = False  # whether elements lie in rows, none of which another's numbers change
    walks_space: ClassVar[bool] = False  # whether kernels walk any index space, whose shape says which code runs

    @staticmethod
    def random(subject: Subject, sku: KernelSku, count: int, seed: int, limit: int) -> list[Problem] | None:
        """So many problems, always the same for a seed, that selection gives to `sku`; None if the spec draws them."""
        return None

    @staticmethod
    def drawn_cases(
        subject: Subject, skus: list[KernelSku], rng: np.random.Generator, limit: int
    ) -> Iterator[Mapping[str, Any]] | None:
        """Cases without end, of up to `limit` elements, that some of `skus` serve; None if the spec draws them."""
        return None

    @staticmethod
    def edge_cases(subject: Subject, sku: KernelSku) -> Iterator[Mapping[str, Any]] | None:
        """Cases at the edges of what `sku` has room for; None if its schedule says nothing of that."""
        return None

    @staticmethod
    def short_cases(subject: Subject, sku: KernelSku) -> Iterator[Mapping[str, Any]]:
        """Cases in which packs around the elements of one row reach into others."""
        yield from ()

    @staticmethod
    def long_cases(subject: Subject, sku: KernelSku, bases: Sequence[Problem]) -> Iterator[Mapping[str, Any]]:
        """Cases of several tiles that `sku` can serve, the most telling first."""
        yield from ()

    @staticmethod
    def in_turns(sku: KernelSku, bases: Sequence[Problem]) -> Problem | None:
        """A small problem of few blocks that take several turns, if the plan can be told their number."""
        return None

    @staticmethod
    def only_layout(subject: Subject, sku: KernelSku) -> str | None:
        """The layout of arrays for `sku`, if there is only one."""
        return None

    @staticmethod
    def path_of(subject: Subject, sku: KernelSku) -> Hashable:
        """The same for kernels of an op that have the same code, whatever their numbers and element types."""
        return "", sku.layout, number_names(sku)

    @staticmethod
    def over(spec: Any, tensor: Any) -> str:
        """What a plan declares that a tensor has a value for."""
        held: str = tensor.held
        return held

    @staticmethod
    def check_plan(subject: Subject) -> None:
        """Raise AssertionError if the plan declares anything else than the spec, of what other families have not."""

    @staticmethod
    def facts(spec: Any) -> dict[str, Any]:
        """What callers rely on and only people change, of what other families have not."""
        return {}

    @staticmethod
    def launch_terms(spec: Any) -> list[str] | None:
        """The expressions that decide what is launched; None if no author writes these."""
        return None


def number_names(sku: KernelSku) -> frozenset[str]:
    """The names of a schedule's numbers, which distinguish the algorithms of an op."""
    numbers = sku.schedule.numbers if isinstance(sku.schedule, Schedule) else ()
    return frozenset(name for name, _ in numbers) - {"blocks_per_sm"}
