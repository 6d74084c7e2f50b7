"""The order of the tests that a mutant runs: quick ones that kill most first, then all spec-driven tests."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from baracuda.runtime import KernelSku, Tile

from ..problems.cases import fills_packs, short_problems
from ..problems.subject import Subject
from ..trials.memory import HostMemory, check_mode
from ..verify import accesses, checks, chosen, suite, table

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
_SHORTENED = "accesses"  # of row ops on two problems: on all it takes as long as everything else and kills no more
ORDERS = ("reverse", "random")
_PATIENCE = 60.0  # seconds for a launch of the slowest tests; mutants that hang are killed before


@dataclass(frozen=True)
class Stage:
    """A group of tests: `run` raises the first failure."""

    name: str
    run: Callable[[], None]

    def judge(self) -> None:
        """Run, and raise what they warn of, too: a loose bound may hide a defect."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            self.run()


def of_kernel(subject: Subject, sku: KernelSku, memory: HostMemory) -> tuple[list[Stage], list[Stage]]:
    """The stages of a kernel: quick ones, and the rest."""
    first, *tests = _tests(subject, sku, memory)
    orders = [Stage(f"{order} order", partial(in_order, sku, memory, order)) for order in ORDERS]
    dear = [stage for stage in tests if stage.name in _LAST]
    cheap = [stage for stage in tests if stage not in dear]
    quick = [Stage("smallest", partial(smallest, sku, memory)), first]
    return quick, [*cheap, *orders, *dear]


def of_plan(subject: Subject, skus: list[KernelSku], memory: HostMemory) -> tuple[list[Stage], list[Stage]]:
    """The stages of a plan: tests of the op, then those of some of its kernels."""
    tests = [(name, test) for name, test in suite_tests() if "subject" in inspect.signature(test).parameters]
    quick = [Stage(name, bound(test, subject=subject, memory=memory)) for name, test in tests]
    first, *others = ([*_tests(subject, sku, memory)] for sku in skus)
    slow = (_SHORTENED, *_LAST)
    rest = [stage for tests in (first[1:], *others) for stage in tests if stage.name not in slow]
    return quick + first[:1], rest + [stage for stage in first if stage.name in _LAST]


def bound(test: Callable[..., None], **arguments: object) -> Callable[[], None]:
    """`test` with those of `arguments` that it takes."""
    return partial(test, **{name: arguments[name] for name in inspect.signature(test).parameters})


def _tests(subject: Subject, sku: KernelSku, memory: HostMemory) -> Iterator[Stage]:
    """The tests that run on kernels such as `sku`, but for the suite's order of its watched ones."""
    watched = []
    for name, test in suite_tests():
        if "sku" in inspect.signature(test).parameters and table.runs_on(name, subject, sku):
            run = bound(test, sku=sku, memory=memory)
            if name == _SHORTENED:
                shortened = partial(_accesses, sku) if isinstance(sku.schedule, Tile) else run
                watched.append(Stage(name, partial(_patiently, shortened, memory)))
            else:
                yield Stage(name, partial(_patiently, run, memory) if name in _LAST else run)
    yield from watched


def suite_tests() -> list[tuple[str, Callable[..., None]]]:
    """The suite's tests by name, the most telling for their time first."""
    named = [(name.removeprefix("test_"), test) for name, test in vars(suite).items() if name.startswith("test_")]
    order = {name: place for place, name in enumerate((*_FIRST, "", _SHORTENED, *_LAST))}
    return sorted(named, key=lambda entry: order.get(entry[0], len(_FIRST)))


def _patiently(run: Callable[[], None], memory: HostMemory) -> None:
    before, memory.device.timeout = memory.device.timeout, _PATIENCE
    try:
        run()
    finally:
        memory.device.timeout = before


def _accesses(sku: KernelSku) -> None:
    """Check mode on the smallest problem of several rows whose rows are whole packs, on one whose are not, and on rows
    far shorter than the tile.
    """
    problems = sorted(chosen.problems_of(sku.op, sku.symbol), key=lambda p: p.size)
    vec = 16 // sku.element.row.bytes
    several = [p for p in problems if p.several]
    with check_mode() as watched:
        for packed in (True, False):
            for problem in [p for p in several if fills_packs(p, vec) == packed][:1]:
                accesses.check_accesses(problem, watched, thoroughly=False)
        for problem in short_problems(chosen.subject_of(sku), sku):
            accesses.check_beginnings(problem, watched)


def smallest(sku: KernelSku, memory: HostMemory, count: int = 3) -> None:
    """The accuracy of ordinary inputs on a few small problems of several rows, and on the smallest of all."""
    problems = sorted(chosen.problems_of(sku.op, sku.symbol), key=lambda p: p.size)
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
