"""Judge the mutants of one kernel: compare their machine code with the original's, and run tests on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

from baracuda.runtime import CompileError, KernelSku, Registered
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.device import KernelSource
from baracuda.runtime.host.build import Builder
from baracuda.runtime.host.cache import BuildCache
from baracuda.runtime.host.toolchain import find_toolchain

from ..problems.subject import Subject
from ..trials.memory import HostMemory
from ..verify import chosen
from . import stages
from .mutants import probes
from .mutants.kernels import Mutant
from .mutants.targets import pasted, reached_by
from .verdict import SAME, STILLBORN, Verdict, first_objection, in_one_line


class KernelBench:
    """Runs the tests of a SKU on its source, mutated or not."""

    def __init__(self, subject: Subject, row: Registered, memory: HostMemory) -> None:
        self.row, self.memory, self.text = row, memory, pasted(row)
        self.stages = stages.of_kernel(subject, row.sku, memory)
        self.builder = Builder(find_toolchain(), BuildCache(cache_root() / "host"))
        self.variants = _variants(row.sku, self.text)
        self.statements = probes.statements(reached_by(subject, row))

    @cache  # noqa: B019  one bench per process
    def unchanged(self, rest: bool) -> Verdict:
        """The verdict on the unchanged kernel."""
        with instead_of(self.memory.device, self.row, self.text):
            return first_objection(self.stages[rest])

    def compare(self, mutant: Mutant) -> Verdict | None:
        """The verdict on a mutant whose machine code is the same or that does not compile; None for others."""
        try:
            differs = any(self._differs(mutant, variant) for variant in self.variants)
            return None if differs else Verdict(SAME)
        except CompileError as error:
            return Verdict(STILLBORN, "", in_one_line(error))

    def judge(self, mutant: Mutant, rest: bool) -> Verdict:
        """Run the quick tests of a mutant, or with `rest` the others."""
        if not rest and (verdict := self.compare(mutant)):
            return verdict
        with instead_of(self.memory.device, self.row, mutant.apply(self.text)):
            return first_objection(self.stages[rest])

    def _differs(self, mutant: Mutant, variant: KernelSource) -> bool:
        number = probes.statement_at(self.statements, mutant.start)
        if number is not None and number not in self._marks(variant):
            return False
        return self.builder.code(replace(variant, text=mutant.apply(self.text))) != self.builder.code(variant)

    def _marks(self, variant: KernelSource) -> frozenset[int]:
        """The statements that are in the machine code of a variant."""
        try:
            return probes.marks(self.builder.code(replace(variant, text=self._marked)))
        except CompileError:  # a mark is not allowed somewhere; then every statement counts
            return frozenset(range(len(self.statements)))

    @cached_property
    def _marked(self) -> str:
        return probes.marked(self.text, self.statements)


def _variants(sku: KernelSku, text: str) -> list[KernelSource]:
    """Each layout with each choice of optional tensors that the tests compile, small problems first.

    Element types of single tensors are left out: they change conversions, not statements.
    """
    problems = sorted(chosen.problems_of(sku.op, sku.symbol), key=lambda p: p.size)
    sources = [replace(source, text=text) for problem in problems for source in problem.plan.sources()]
    return list(dict.fromkeys(sources))


@contextmanager
def instead_of(device: Any, row: Registered, text: str) -> Iterator[None]:
    """Make the host device run `text` in place of a kernel."""
    load, symbols = type(device).load, _symbols(row.sku)

    def changed(source: KernelSource) -> Any:
        return load(device, replace(source, text=text) if source.symbol in symbols else source)

    chosen.problems_of.cache_clear()  # earlier plans keep launches of the original
    chosen.subject_of(row.sku).plan._selected.clear()
    device.load, device.is_loaded = changed, lambda source: False
    try:
        yield
    finally:
        del device.load, device.is_loaded


def _symbols(sku: KernelSku) -> frozenset[str]:
    """The entry points of a kernel."""
    names = [kernel.name for kernel in getattr(chosen.subject_of(sku).plan, "KERNELS", ())]
    return frozenset([sku.symbol, *(f"{sku.symbol}_{name}" for name in names)])
