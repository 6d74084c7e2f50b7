"""What runs under load: a kernel's problem with the bits of its first run, and parts of its batch at every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from math import gcd
from typing import Any

import numpy as np

from baracuda.runtime import BaracudaError

from ..golden.numbers import draw
from ..golden.sample import sampled
from ..oracles.accuracy import as_float
from ..problems.problem import Arrays, Problem
from ..problems.subject import Subject
from ..problems.turns import anew
from ..trials.arrange import arrange
from ..trials.memory import Memory
from ..verify.agreement import promised_by
from ..verify.invariance import check_multiprocessors, cut, every_place
from .slab import Places, Tensor

Bits = dict[str, Any]  # by argument, arrays of words


@dataclass
class Case:
    """A problem, its inputs, and outputs that it must have again; `parts` are problems of fewer rows or samples."""

    problem: Problem
    parts: list[Problem]
    places: list[Places]  # of the problem and of each part
    counts: list[int]  # places in the batch where each part may lie
    inputs: Bits = field(default_factory=dict)
    same: Bits = field(default_factory=dict)  # outputs that every run must repeat
    of_rows: Bits = field(default_factory=dict)  # those that the same rows have in any batch
    numbers: Bits = field(default_factory=dict)  # where outputs are numbers: NaNs of other kernels may have other bits
    met: bytearray = field(init=False)  # by place, whether it had its turn

    def __post_init__(self) -> None:
        self.met = bytearray(sum(self.counts))

    @property
    def name(self) -> str:
        return f"{self.problem.plan.sku.symbol} on {self.problem.descriptor}"

    def compilations(self) -> Iterator[Callable[[], None]]:
        """Tasks that load every kernel that runs."""
        for problem, places in zip((self.problem, *self.parts), self.places, strict=True):
            for unit in places.units:
                yield partial(places.bind, problem, unit)

    def run_first(self, memory: Memory, library: Any) -> None:
        """Compute what later runs must repeat, here alone; raises AssertionError if grids change promised bits."""
        inputs = draw(self.problem)
        outputs, tensors = arrange(self.problem, inputs, memory).run(), self.places[0].tensors
        self.inputs = _bits(inputs, tensors, library)
        repeated = promised_by(self.problem, "deterministic") | promised_by(self.problem, "bit_stable_on_same_hardware")
        rows = promised_by(self.problem, "batch_invariant")
        self.same = _bits({n: a for n, a in outputs.items() if n in repeated}, tensors, library)
        self.of_rows = _bits({n: a for n, a in outputs.items() if n in rows}, tensors, library)
        numbers = {n: ~np.isnan(as_float(a)) for n, a in outputs.items() if n in rows}
        self.numbers = {n: library.asarray(there) for n, there in numbers.items() if not there.all()}
        check_multiprocessors(self.problem, inputs, outputs, memory)

    def renew(self) -> None:
        """Plans that have not run yet, which remember no calls."""
        self.problem, self.parts = anew(self.problem), [anew(part) for part in self.parts]

    def turn(self, number: int) -> tuple[Problem, Places, Bits, Bits, Bits]:
        """A run: the whole problem, and every other time a part of its batch, at one place after another."""
        if not self.met or number % 2 == 0:
            return self.problem, self.places[0], self.inputs, self.same, {}
        index, share = self._part_at(number // 2)
        part, places = self.parts[index], self.places[1 + index]
        shapes = {name: tensor.shape for name, tensor in places.tensors.items()}
        of = self.inputs, self.of_rows, self.numbers
        inputs, outputs, numbers = ({n: a[cut(a.shape, shapes[n], share)] for n, a in bits.items()} for bits in of)
        return part, places, inputs, outputs, numbers

    def _part_at(self, turn: int) -> tuple[int, Fraction]:
        """A part by number, and the share of what is beyond it that lies before; as many turns as places take each."""
        place = turn * _step(len(self.met)) % len(self.met)
        self.met[place] = True
        index = 0
        while place >= self.counts[index]:
            place -= self.counts[index]
            index += 1
        return index, Fraction(place, max(1, (self.problem.batch or 0) - (self.parts[index].batch or 0)))


@cache
def _step(count: int) -> int:
    """A step that goes round to each of `count` places, far from the one before."""
    return next(step for step in range(round(0.618 * count) + 1, 2 * count + 2) if gcd(step, count) == 1)


def cases_of(subject: Subject, arch: str, device: str) -> Iterator[Case]:
    """An op's kernels of which golden hashes are recorded, as far as `arch` runs them."""
    for problem in sampled(subject):
        if problem.plan.sku.fits(arch) is None:
            parts = [part for part in _parts(problem) if part.plan.sku.fits(arch) is None]
            places = [Places(p, device) for p in (problem, *parts)]
            yield Case(problem, parts, places, [len(every_place(problem, part)) for part in parts])


def _parts(problem: Problem) -> Iterator[Problem]:
    """One row or sample, and half of the batch, of problems whose rows keep their bits in any batch."""
    batch = problem.batch or 0
    if not promised_by(problem, "batch_invariant"):
        return
    for count in sorted({1, batch // 2} - {0}) if batch > 1 else ():
        with suppress(BaracudaError):  # a requirement, or no kernel
            yield problem.with_batch(count)


def _bits(arrays: Arrays, tensors: Mapping[str, Tensor], library: Any) -> Bits:
    return {name: library.asarray(tensors[name].bits(array)) for name, array in arrays.items()}
