"""The order of the tests that a mutant runs: quick ones that kill most first, then all spec-driven tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from baracuda.runtime import KernelSku

from ..problems.cases import fills_packs
from ..problems.subject import Subject
from ..trials.memory import HostMemory, check_mode
from ..verify import accesses, checks, suite

# The suite's tests that kill most per second; others follow in the suite's order.
_FIRST = (
    "layouts",
    "special_values",
    "in_place",
    "explicit_formula",
    "argument_refusals",
    "stored_types",
    "batch_invariance",
    "broadcast_inputs",
    "huge_strides",
)
_LAST = ("accuracy",)
_SHORTENED = "accesses"  # on two problems: on all it takes as long as everything else and kills no more
ORDERS = ("reverse", "random")
_PATIENCE = 60.0  # seconds for a launch of the slowest tests; mutants that hang are killed before


@dataclass(frozen=True)
class Stage:
    """A group of tests: `run` raises the first failure."""

    name: str
    run: Callable[[], None]


def of_kernel(sku: KernelSku, memory: HostMemory) -> tuple[list[Stage], list[Stage]]:
    """The stages of a kernel: quick ones, and the rest."""
    first, *tests = _tests(sku, memory)
    orders = [Stage(f"{order} order", partial(in_order, sku, memory, order)) for order in ORDERS]
    dear = [stage for stage in tests if stage.name in _LAST]
    cheap = [stage for stage in tests if stage not in dear]
    quick = [Stage("smallest", partial(smallest, sku, memory)), first]
    return quick, [*cheap, Stage(_SHORTENED, partial(_patiently, partial(_accesses, sku), memory)), *orders, *dear]


def of_plan(subject: Subject, skus: list[KernelSku], memory: HostMemory) -> tuple[list[Stage], list[Stage]]:
    """The stages of a plan: tests of the op, then those of some of its kernels."""
    quick = []
    for name, test in suite_tests():
        if "subject" in inspect.signature(test).parameters:
            quick.append(Stage(name, bound(test, subject=subject, memory=memory)))
    first, *others = ([*_tests(sku, memory)] for sku in skus)
    rest = [stage for tests in (first[1:], *others) for stage in tests if stage.name not in _LAST]
    return quick + first[:1], rest + [stage for stage in first if stage.name in _LAST]


def _tests(sku: KernelSku, memory: HostMemory) -> Iterator[Stage]:
    for name, test in suite_tests():
        if name == _SHORTENED:
            continue
        if "sku" in inspect.signature(test).parameters:
            run = bound(test, sku=sku, memory=memory)
            yield Stage(name, partial(_patiently, run, memory) if name in _LAST else run)


def suite_tests() -> list[tuple[str, Callable[..., None]]]:
    """The suite's tests by name, the most telling for their time first."""
    named = [(name.removeprefix("test_"), test) for name, test in vars(suite).items() if name.startswith("test_")]
    order = {name: place for place, name in enumerate((*_FIRST, "", _SHORTENED, *_LAST))}
    return sorted(named, key=lambda entry: order.get(entry[0], len(_FIRST)))


def bound(test: Callable[..., None], **arguments: object) -> Callable[[], None]:
    """`test` with those of `arguments` that it takes."""
    return partial(test, **{name: arguments[name] for name in inspect.signature(test).parameters})


def _patiently(run: Callable[[], None], memory: HostMemory) -> None:
    before, memory.device.timeout = memory.device.timeout, _PATIENCE
    try:
        run()
    finally:
        memory.device.timeout = before


def _accesses(sku: KernelSku) -> None:
    """Check mode on the smallest problem of several rows whose rows are whole packs, and on one whose are not."""
    problems = sorted(suite.problems_of(sku.op, sku.symbol), key=lambda p: p.size)
    vec = 16 // sku.element.row.bytes
    several = [p for p in problems if p.several]
    with check_mode() as watched:
        for packed in (True, False):
            for problem in [p for p in several if fills_packs(p, vec) == packed][:1]:
                accesses.check_accesses(problem, watched, thoroughly=False)


def smallest(sku: KernelSku, memory: HostMemory, count: int = 3) -> None:
    """The accuracy of ordinary inputs on a few small problems of several rows, and on the smallest of all."""
    problems = sorted(suite.problems_of(sku.op, sku.symbol), key=lambda p: p.size)
    several = [p for p in problems if p.several]
    for problem in [*several[:count], *problems[:1]]:
        for name, accuracy in checks.measured(problem, memory, "normal").items():
            if not accuracy.worst_ratio <= 1:
                raise AssertionError(f"{sku.symbol} on {problem.descriptor}: {name!r} is off by {accuracy}")


def in_order(sku: KernelSku, memory: HostMemory, order: str) -> None:
    memory.device.order = order
    try:
        smallest(sku, memory)
        suite.test_layouts(sku, memory)
    finally:
        memory.device.order = "forward"
