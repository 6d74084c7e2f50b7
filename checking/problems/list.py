"""A problem of the list family: arrays that are cut into lists of many sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from baracuda.codegen.families.list.spec import ListSpec
from baracuda.runtime import ElementKind, InvalidProblem, KernelSku, TensorView, Unsupported

from .map import MapProblem
from .problem import Arguments, WrongCall
from .subject import Subject

_SMALL = 9  # elements of the largest array, where a problem has many

_APART = ("longer", "alone", "shorter")  # wrong beside other lists only


class ListProblem(MapProblem, family="list"):
    """Lists whose arrays lie one after another, at any alignment, some of them of size 0."""

    walks_space = False
    spec: ListSpec

    @cached_property
    def cuts(self) -> list[int]:
        """The number of elements of each array of a list: of 3000 together, say, there are more than a launch takes."""
        total = self.size
        rng, cuts, left = np.random.default_rng(total), [0], total
        while left:
            largest = left if total % 3 else _SMALL
            cuts.append(min(left, int(math.exp(rng.uniform(0, math.log(largest + 1)))) - int(rng.integers(2))))
            left -= cuts[-1]
        return cuts

    def passed(self, name: str, view: TensorView) -> Any:
        if not self.spec.arguments[name].dims:
            return view
        ends = np.cumsum(self.cuts).tolist()
        return [self._part(view, end - size, size) for size, end in zip(self.cuts, ends, strict=True)]

    @staticmethod
    def _part(view: TensorView, begin: int, size: int) -> TensorView:
        pointer = view.pointer + begin * view.element.row.bytes
        shape, strides = ((size // 2, 2), (2, 1)) if size % 2 == 0 else ((size,), (1,))
        return view._replace(pointer=pointer, shape=shape, strides=strides, capacity=(0, size))

    def wrong_calls(self, arguments: Arguments) -> Iterator[WrongCall]:
        """With each list in turn: one array more, none, another shape, gaps, another type, another's memory."""
        if self.size < 4:
            return
        names = [n for n, v in arguments.items() if v is not None and self.spec.arguments[n].dims]
        good = arguments | {n: self._in_two(arguments[n]) for n in names}
        yield "empty lists", InvalidProblem, good | {n: [] for n in names}, ("at least one array",)
        for name in names:
            first, second = good[name]
            place, strange = f"{name}[1]", next(k for k in (ElementKind.I16, ElementKind.I8) if k != second.element)
            shorter = second._replace(shape=(second.shape[0] - 1,))
            apart, typed = second._replace(strides=(2,)), second._replace(element=strange)
            again = first._replace(shape=second.shape, capacity=None)
            for label, error, items, says in (
                ("longer", InvalidProblem, [first, second, second], (name, "same number of arrays")),
                ("alone", InvalidProblem, arguments[name], (name, "list of arrays")),
                ("with a hole", InvalidProblem, [first, None], (place, "None")),
                ("shorter", InvalidProblem, [first, shorter], ("must have the shape",)),
                ("with gaps", Unsupported, [first, apart], (place, "strides")),
                ("of two types", Unsupported, [first, typed], (place, f"holds {strange}")),
                ("twice", InvalidProblem, [first, again], ("overlaps",)),
            ):
                if (label != "twice" or self.plan.ARGUMENTS[name].written) and (label not in _APART or len(names) > 1):
                    yield f"{name} {label}", error, good | {name: items}, says

    def _in_two(self, view: TensorView) -> list[TensorView]:
        """A list of two arrays."""
        ends, size = (self.size // 2, self.size), view.element.row.bytes
        return [
            view._replace(pointer=view.pointer + begin * size, shape=(end - begin,), capacity=None)
            for begin, end in zip((0, *ends), ends, strict=False)
        ]

    @classmethod
    def limits(cls, subject: Subject) -> tuple[str, ...]:
        """Elements of a pack, and of a block."""
        return (*super(MapProblem, cls).limits(subject), "cells < pack", "cells < threads * packs * pack")

    def numbers(self, descriptor: Any, sku: KernelSku) -> Mapping[str, Any]:
        return {name: n for name, n in super().numbers(descriptor, sku).items() if name != "last"}
