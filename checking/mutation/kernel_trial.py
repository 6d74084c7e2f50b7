"""Judge the mutants of one kernel: compare their machine code with the original's, and run tests on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from baracuda.runtime import CompileError, KernelSku, Registered
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.device import KernelSource
from baracuda.runtime.host.build import Builder
from baracuda.runtime.host.cache import BuildCache
from baracuda.runtime.host.toolchain import find_toolchain

from ..trials.memory import HostMemory
from ..verify import suite
from . import stages
from .mutants import probes
from .mutants.kernels import Mutant, pasted, reached_by
from .verdict import SAME, STILLBORN, Verdict, first_objection, in_one_line


class KernelBench:
    """Runs the tests of a SKU on its source, mutated or not."""

    def __init__(self, row: Registered, memory: HostMemory) -> None:
        self.sku, self.memory, self.text = row.sku, memory, pasted(row.source)
        self.stages = stages.of_kernel(row.sku, memory)
        self.builder = Builder(find_toolchain(), BuildCache(cache_root() / "host"))
        self.variants = _variants(row.sku, self.text)
        self.originals = {variant: self._code(variant) for variant in self.variants}
        self.statements = probes.statements(reached_by(row, self.text))
        marked = probes.marked(self.text, self.statements)
        self.marks = {variant: self._marks(replace(variant, text=marked)) for variant in self.variants}

    @cache  # noqa: B019  one bench per process
    def unchanged(self, rest: bool) -> Verdict:
        """The verdict on the unchanged kernel."""
        with instead_of(self.memory.device, self.sku, self.text):
            return first_objection(self.stages[rest])

    def compare(self, mutant: Mutant) -> Verdict | None:
        """The verdict on a mutant whose machine code is the same or that does not compile; None for others."""
        sources = [replace(v, text=mutant.apply(self.text)) for v in self.variants if self._reaches(mutant, v)]
        try:
            differs = any(self._code(source) != self.originals[replace(source, text=self.text)] for source in sources)
            return None if differs else Verdict(SAME)
        except CompileError as error:
            return Verdict(STILLBORN, "", in_one_line(error))

    def judge(self, mutant: Mutant, rest: bool) -> Verdict:
        """Run the quick tests of a mutant, or with `rest` the others."""
        if not rest and (verdict := self.compare(mutant)):
            return verdict
        with instead_of(self.memory.device, self.sku, mutant.apply(self.text)):
            return first_objection(self.stages[rest])

    def _code(self, source: KernelSource) -> bytes:
        return self.builder.code(source)

    def _marks(self, source: KernelSource) -> frozenset[int]:
        try:
            return probes.marks(self._code(source))
        except CompileError:  # a mark is not allowed somewhere; then every statement counts
            return frozenset(range(len(self.statements)))

    def _reaches(self, mutant: Mutant, variant: KernelSource) -> bool:
        number = probes.statement_at(self.statements, mutant.start)
        return number is None or number in self.marks[variant]


def _variants(sku: KernelSku, text: str) -> list[KernelSource]:
    """Each layout with each choice of optional tensors that the tests compile, small problems first.

    Element types of single tensors are left out: they change conversions, not statements.
    """
    problems = sorted(suite.problems_of(sku.op, sku.symbol), key=lambda p: p.size)
    sources = [replace(source, text=text) for problem in problems for source in problem.plan.sources()]
    return list(dict.fromkeys(sources))


@contextmanager
def instead_of(device: Any, sku: KernelSku, text: str) -> Iterator[None]:
    """Make the host device run `text` in place of kernel `sku`."""
    load = type(device).load

    def changed(source: KernelSource) -> Any:
        return load(device, replace(source, text=text) if source.symbol == sku.symbol else source)

    suite.problems_of.cache_clear()  # earlier plans keep launches of the original
    suite.subject_of(sku).plan._selected.clear()
    device.load, device.is_loaded = changed, lambda source: False
    try:
        yield
    finally:
        del device.load, device.is_loaded
