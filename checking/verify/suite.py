"""The spec-driven tests as pytest collects them: one item per promise and SKU, named so that a red line says it all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.spec import BodySpec
from baracuda.runtime import KernelSku, Schedule, Tile
from baracuda.runtime.families.row.geometry import WARP

from ..problems.cases import problems, random_problems, skus
from ..problems.problem import Problem
from ..problems.subject import Subject
from ..trials.memory import Memory, check_mode, memory_of
from ..variables import DEVICE, OPS, PACKAGE, SPECS
from . import checks, declarations, refusals
from .accesses import SMALL, check_accesses

_RANDOM = 12  # problems a SKU that two devices are compared on
HERE = Path(__file__).resolve().parents[2] / "specs"


@cache
def subjects() -> tuple[Subject, ...]:
    """The ops under test."""
    loaded = load_folder(Path(os.environ.get(SPECS, HERE)))
    wanted = os.environ.get(OPS, "").split()
    package = os.environ.get(PACKAGE, "baracuda.generated")
    return tuple(Subject(one, loaded, package) for op, one in loaded.items() if not wanted or op in wanted)


@cache
def problems_of(op: str, symbol: str) -> tuple[Problem, ...]:
    subject = next(s for s in subjects() if s.spec.op == op)
    sku = next(s for s in skus(subject) if s.symbol == symbol)
    return tuple(problems(subject, sku))


def _device() -> str:
    return os.environ.get(DEVICE, "host")


def _small(sku: KernelSku) -> Problem:
    """The smallest problem of a SKU that has several of everything."""
    found = [p for p in problems_of(sku.op, sku.symbol) if p.several] or problems_of(sku.op, sku.symbol)
    return min(found, key=lambda p: p.size)


def _telling(sku: KernelSku) -> list[Problem]:
    """Problems to lay out and look at: of hand-written bodies the smallest and the one of most arguments."""
    found = problems_of(sku.op, sku.symbol)
    if subject_of(sku).spec.family != "body":
        return list(found)
    most = max((p for p in found if p.size <= SMALL), key=lambda p: len(p.arguments), default=_small(sku))
    return [_small(sku)] if most == _small(sku) else [_small(sku), most]


def _narrowest(sku: KernelSku) -> KernelSku:
    """The SKU of the same op, element and entry points with the smallest tile, for what does not vary with tiles."""
    alike = (s for s in skus(subject_of(sku)) if (s.element, s.arch) == (sku.element, sku.arch))
    return next(s for s in alike if _numbers(s) == _numbers(sku))


def _numbers(sku: KernelSku) -> frozenset[str]:
    """What a schedule counts, which tells the ways apart that a hand-written body has to do its work."""
    known = sku.schedule.numbers if isinstance(sku.schedule, Schedule) else ()
    return frozenset(name for name, _ in known) - {"blocks_per_sm"}


def subject_of(sku: KernelSku) -> Subject:
    return next(s for s in subjects() if s.spec.op == sku.op)


def pytest_generate_tests(metafunc: Any) -> None:
    """Give each test below its SKUs, or its ops."""
    if "sku" in metafunc.fixturenames:
        there = "cuda" if _device() == "cuda" else "host"
        rows = [sku for subject in subjects() for sku in skus(subject, there)]
        test = metafunc.function.__name__
        if there == "host":  # on one or two cores
            rows = [sku for sku in rows if _is_worth(test, sku)]
        if test == _OF_PROGRAMS:
            rows = [sku for sku in rows if subject_of(sku).spec.family != "body"]
        if test == _AGREEMENT:
            rows = [sku for sku in rows if sku.fits("host") is None]
        metafunc.parametrize("sku", rows, ids=[s.symbol for s in rows])
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", subjects(), ids=[s.spec.op for s in subjects()])


@pytest.fixture(scope="session")
def memory() -> Iterator[Memory]:
    """Memory of the device that the tests run on."""
    if _device() == "check":
        with check_mode() as watched:
            yield watched
    else:
        yield memory_of(_device())


def test_accuracy(sku: KernelSku, memory: Memory) -> None:
    # Hand-written bodies have schedules that few problems of a size fit to be tested are for, and keys that are split
    # among blocks are added up far more exactly than the bound has to allow.
    tight = subject_of(sku).spec.family != "body" or (sku == _narrowest(sku) and "splits" not in _numbers(sku))
    checks.check_accuracy(list(problems_of(sku.op, sku.symbol)), memory, tight=tight)


def test_explicit_formula(sku: KernelSku, memory: Memory) -> None:
    checks.check_explicit(_small(sku), memory)


def test_stored_types(sku: KernelSku, memory: Memory) -> None:
    checks.check_stored_types(_small(sku), memory)


def test_layouts(sku: KernelSku, memory: Memory) -> None:
    for problem in _telling(sku):
        if problem.size <= SMALL or problem == _small(sku):
            checks.check_layouts(problem, memory)


def test_broadcast_inputs(sku: KernelSku, memory: Memory) -> None:
    checks.check_broadcast(_small(sku), memory)


def test_huge_strides(sku: KernelSku, memory: Memory) -> None:
    checks.check_huge_strides(max(problems_of(sku.op, sku.symbol), key=_twos), memory)


# What is the plan's, and the same for all its kernels; and what is the kernel's and the same for all tiles of a type.
_OF_PLAN = (
    *("test_stored_types", "test_broadcast_inputs", "test_huge_strides", "test_in_place", "test_argument_refusals"),
    *("test_preferences", "test_check_order", "test_entry_points", "test_explicit_formula"),
)
_OF_PROGRAMS = "test_explicit_formula"
_AGREEMENT = "test_agreement_with_the_host_device"  # of kernels that both can run
_OF_TYPE = ("test_layouts", "test_special_values", "test_batch_invariance", "test_accesses")
_OF_ADDRESSES = "test_accesses"  # which follow from the sizes of elements, whatever they are


def _is_worth(test: str, sku: KernelSku) -> bool:
    """Whether a test says something of `sku` that it has not said of another kernel of the op; on a GPU all are run."""
    subject = subject_of(sku)
    if test == _OF_ADDRESSES and not _is_first_of_size(sku):
        return False
    if subject.spec.family == "row":
        if sku != _alike(sku)[0]:  # the same code with other numbers
            return sku.element == subject.spec.dtypes[0] and test not in _OF_PLAN + _OF_TYPE
        return test not in _OF_PLAN or sku.element in subject.spec.dtypes[:2]
    if not (test in _OF_PLAN or test in _OF_TYPE):
        return True
    if sku != _narrowest(sku) and sku.layout is None:
        return False
    if isinstance(subject.spec, BodySpec) and sku.arch not in subject.spec.body:  # the same code with other tiles
        return False
    return test in _OF_TYPE or sku.element in subject.spec.dtypes[:2]


def _is_first_of_size(sku: KernelSku) -> bool:
    """Whether no kernel before it has the same schedule for elements of the same size, in memory and where summed."""

    def sizes(one: KernelSku) -> tuple[object, ...]:
        return one.arch, one.schedule, one.layout, one.element.row.bytes, one.element.row.acc.row.bytes

    return sku == next(s for s in skus(subject_of(sku)) if sizes(s) == sizes(sku))


def _alike(sku: KernelSku) -> list[KernelSku]:
    """The row op's kernels for the element whose rows lie within a warp if those of `sku` do, or within a block, or are
    walked along."""

    def shape(tile: Tile) -> tuple[bool, bool]:
        return tile.wide, tile.lanes > WARP

    held = (s for s in skus(subject_of(sku)) if s.element == sku.element)
    return [s for s in held if shape(s.tile) == shape(sku.tile)]


def _twos(problem: Problem) -> int:
    """How many axes of an array are of length 2."""
    return max(problem.shape_of(name).count(2) for name in problem.arguments)


def test_in_place(sku: KernelSku, memory: Memory) -> None:
    checks.check_in_place(_small(sku), memory)


def test_batch_invariance(sku: KernelSku, memory: Memory) -> None:
    for problem in problems_of(sku.op, sku.symbol):
        checks.check_batch_invariance(problem, memory)


def test_special_values(sku: KernelSku, memory: Memory) -> None:
    checks.check_special_values(_small(sku), memory)


if _device() == "cuda":

    def test_agreement_with_the_host_device(sku: KernelSku, memory: Memory) -> None:
        drawn = random_problems(subject_of(sku), sku, _RANDOM, seed=11)
        for turn, problem in enumerate([*problems_of(sku.op, sku.symbol), *drawn]):
            checks.check_agreement(problem, memory, memory_of("host"), seed=turn)


if _device() == "host":

    def test_accesses(sku: KernelSku) -> None:
        with check_mode() as watched:
            for problem in _telling(sku):
                small = problem.size <= SMALL
                if small or sku.element == subject_of(sku).spec.dtypes[0]:  # large ones differ in no address
                    thoroughly = problem == _small(sku) and sku == _narrowest(sku)
                    check_accesses(problem, watched, thoroughly=thoroughly)


def test_argument_refusals(sku: KernelSku, memory: Memory) -> None:
    refusals.check_arguments(_small(sku), memory)


def test_preferences(sku: KernelSku) -> None:
    refusals.check_preferences(_small(sku))


def test_requirements(subject: Subject) -> None:
    refusals.check_requirements(subject)


def test_types(subject: Subject) -> None:
    refusals.check_types(subject)


def test_elements(subject: Subject) -> None:
    refusals.check_elements(subject)


def test_declarations(subject: Subject) -> None:
    declarations.check_declarations(subject)


def test_check_order(sku: KernelSku, memory: Memory) -> None:
    declarations.check_order(_small(sku), memory)


def test_entry_points(sku: KernelSku, memory: Memory) -> None:
    declarations.check_entry_points(_small(sku), memory)
