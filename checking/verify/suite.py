"""The spec-driven tests for pytest: one item per check and SKU, named after both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from baracuda.runtime import KernelSku
from baracuda.runtime.plans.formula import names_in

from ..problems.cases import random_problems, short_problems, skus
from ..problems.decided import decided_problems
from ..problems.edges import edge_problems
from ..problems.of_kernels import number_names
from ..problems.pairs import paired_problems
from ..problems.problem import Problem
from ..problems.shrunken import shrunken_problems
from ..problems.subject import Subject
from ..problems.sums import in_turns
from ..problems.windows import windowed_problems
from ..ptx.device import ptx_mode
from ..trials.memory import HostMemory, Memory, check_mode, coverage, gpu_text, memory_of
from ..variables import COVERAGE, DEVICE, SAMPLE, SPECS
from . import (
    checks,
    declarations,
    gpu_code,
    invariance,
    keys,
    placements,
    refusals,
    remembered,
    selections,
    special_values,
    table,
)
from .accesses import SMALL, check_accesses, check_beginnings
from .chosen import (
    HERE,
    beside_packs,
    few,
    large,
    long_reductions,
    middling,
    most_unlike,
    narrowest,
    of_each_code,
    of_packs,
    problems_of,
    size_of,
    smallest,
    subject_of,
    subjects,
    turning,
    twos,
)
from .conversions import TEXTS, check_conversions
from .defaults import check_defaults
from .functions import check_functions
from .second_opinions import check_definition, check_derivation

_RANDOM = 12  # random problems per SKU on which two devices are compared
_AGREEMENT = "agreement_with_the_host_device"


def _device() -> str:
    return os.environ.get(DEVICE, "host")


def pytest_generate_tests(metafunc: Any) -> None:
    """Parametrize each test with its kernels or ops; on the host device by `table`."""
    check = metafunc.function.__name__.removeprefix("test_")
    if "sku" in metafunc.fixturenames:
        if _device() == "cuda":
            rows = [sku for subject in subjects() for sku in skus(subject, "cuda") if _is_of(check, subject, sku)]
        else:
            rows = table.kernels(check, subjects())
        metafunc.parametrize("sku", rows, ids=[s.symbol for s in rows])
    if "subject" in metafunc.fixturenames:
        ops = table.ops(check, subjects()) if _device() != "cuda" else subjects()
        metafunc.parametrize("subject", ops, ids=[s.spec.op for s in ops])


def _is_of(check: str, subject: Subject, sku: KernelSku) -> bool:
    if check == _AGREEMENT:  # only for kernels that both devices can run
        return sku.fits("host") is None
    return table.is_for(check, subject)


@pytest.fixture(scope="session")
def memory() -> Iterator[Memory]:
    """Memory of the device that the tests run on."""
    if _device() in ("check", "coverage"):
        with check_mode() if _device() == "check" else coverage(Path(os.environ[COVERAGE])) as special:
            yield special
    else:
        yield memory_of(_device())


@pytest.fixture(autouse=True)
def _text(request: pytest.FixtureRequest) -> Iterator[None]:
    callspec = getattr(request.node, "callspec", None)
    with gpu_text(text_for(request.function, callspec.params.get("sku") if callspec else None)):
        yield


def text_for(test: Any, sku: KernelSku | None) -> str | None:
    """The architecture whose text of device headers a test of a kernel runs on the host device: newest or oldest."""
    if sku is None:
        return None
    return gpu_code.NEWEST if test is test_accuracy or not gpu_code.runs_on_oldest(sku) else gpu_code.OLDEST


def test_accuracy(sku: KernelSku, memory: Memory) -> None:
    # Few problems small enough to test select a body's larger schedules, and sums over split keys are far more exact
    # than their bound.
    by_hand = subject_of(sku).spec.by_hand
    tight = not by_hand or (sku == narrowest(sku) and "splits" not in number_names(sku))
    checks.check_accuracy(list(problems_of(sku.op, sku.symbol)), memory, tight=tight)


def test_edges(sku: KernelSku, memory: Memory) -> None:
    found = edge_problems(subject_of(sku), sku, problems_of(sku.op, sku.symbol))
    for turn, problem in enumerate(table.some("edges", found, lambda problem: problem)):
        checks.check_problem(problem, memory, style=("normal", "cancelling")[turn % 2])
    for problem in windowed_problems(subject_of(sku), sku, problems_of(sku.op, sku.symbol)):
        checks.check_problem(problem, memory, variant="in a window")
    for problem, numbers in decided_problems(subject_of(sku), sku, problems_of(sku.op, sku.symbol)):
        checks.check_problem(problem, memory, variant="decided at equality", given=numbers)


def test_feature_pairs(sku: KernelSku, memory: Memory) -> None:
    met = paired_problems(subject_of(sku), sku, problems_of(sku.op, sku.symbol))
    for problem, patterns in table.some("feature_pairs", met, lambda pair: pair[0]):
        checks.check_problem(problem, memory, patterns)


def test_explicit_formula(sku: KernelSku, memory: Memory) -> None:
    checks.check_explicit(smallest(sku), memory)


def test_stored_types(sku: KernelSku, memory: Memory) -> None:
    checks.check_stored_types(smallest(sku), memory)


def test_layouts(sku: KernelSku, memory: Memory) -> None:
    for problem in few(sku):
        if problem.size <= SMALL or problem == smallest(sku):
            placements.check_layouts(problem, memory)


def test_broadcast_inputs(sku: KernelSku, memory: Memory) -> None:
    any_space = Problem.kind_of(subject_of(sku)).walks_space
    for problem in dict.fromkeys([of_packs(sku), beside_packs(sku)] if any_space else [smallest(sku)]):
        placements.check_broadcast(problem, memory)


def test_huge_strides(sku: KernelSku, memory: Memory) -> None:
    placements.check_huge_strides(max(problems_of(sku.op, sku.symbol), key=twos), memory)


def test_in_place(sku: KernelSku, memory: Memory) -> None:
    placements.check_in_place(smallest(sku), memory)


def test_batch_invariance(sku: KernelSku, memory: Memory) -> None:
    for problem in problems_of(sku.op, sku.symbol):
        invariance.check_batch_invariance(problem, memory)


def test_batch_choice(subject: Subject, memory: Memory) -> None:
    chosen = [sku for sku in skus(subject, "host") if _reads_batch(subject, sku)]
    sampled = SAMPLE in os.environ
    for sku in chosen[:1] if sampled else chosen:
        largest = sorted(problems_of(sku.op, sku.symbol), key=lambda p: -p.size)  # which a sum's order shows in
        for problem in largest[:2] if sampled else largest:
            invariance.check_batch_choice(problem, memory)


def test_architectures(subject: Subject, memory: Memory) -> None:
    promising = {sku.arch: sku for sku in skus(subject, "host") if sku.precision_guarantee.bit_stable_across_arch}
    for sku in promising.values() if len(promising) > 1 else ():
        largest = max(problems_of(sku.op, sku.symbol), key=size_of)  # which a sum's order shows in
        invariance.check_architectures(largest, promising.keys() - {sku.arch}, memory)


def _reads_batch(subject: Subject, sku: KernelSku) -> bool:
    """Whether the kernel serves batches of some sizes only."""
    if not subject.spec.by_hand or subject.spec.tests.batch is None:
        return False
    fits = subject.plan._conditions.get((sku.arch, sku.element, str(sku.schedule)), "")
    return subject.spec.tests.batch in names_in(subject.plan._written_out(fits)) if fits else False


def test_special_values(sku: KernelSku, memory: Memory) -> None:
    special_values.check_special_values(smallest(sku), memory)
    special_values.check_ties(middling(sku), memory)
    special_values.check_far_places(middling(sku), memory)
    for problem in long_reductions(sku):
        special_values.check_long_reduction(problem, memory)


if _device() == "cuda":

    def test_agreement_with_the_host_device(sku: KernelSku, memory: Memory) -> None:
        drawn = random_problems(subject_of(sku), sku, _RANDOM, seed=11)
        for turn, problem in enumerate([*problems_of(sku.op, sku.symbol), *drawn]):
            checks.check_agreement(problem, memory, memory_of("host"), seed=turn)


if _device() != "cuda":

    def test_shrunken(sku: KernelSku, memory: HostMemory) -> None:
        derived = shrunken_problems(subject_of(sku), sku, problems_of(sku.op, sku.symbol))
        for problem in table.some("shrunken", derived, lambda problem: problem):
            checks.check_shrunken(problem, memory)

    def test_compensation(sku: KernelSku, memory: Memory) -> None:
        checks.check_compensation(in_turns(subject_of(sku), sku, problems_of(sku.op, sku.symbol)), memory)


if _device() in ("host", "coverage"):

    def test_orders(sku: KernelSku, memory: HostMemory) -> None:
        for problem in dict.fromkeys([smallest(sku), middling(sku)]):  # two terms have one order
            invariance.check_orders(problem, memory)

    def test_asynchrony(sku: KernelSku, memory: HostMemory) -> None:
        invariance.check_asynchrony(turning(sku), memory)

    def test_clusters(sku: KernelSku, memory: HostMemory) -> None:
        invariance.check_asynchrony(turning(sku), memory)

    def test_lone_layouts(sku: KernelSku, memory: Memory) -> None:
        others = [most_unlike(of_packs(sku))] if SAMPLE in os.environ else of_each_code(sku)
        for problem in dict.fromkeys([of_packs(sku), *others]):
            checked = _device() == "host" and problem.size <= SMALL
            with check_mode() if checked else nullcontext(memory) as chosen:
                placements.check_lone_layouts(problem, chosen)


if _device() == "host":

    def test_accesses(sku: KernelSku) -> None:
        with check_mode() as watched:
            once = (problem for problem in few(sku) if problem.turns_once)
            derived = table.some("accesses", once, lambda problem: problem)
            for problem in dict.fromkeys([smallest(sku), *derived]):
                always = problem == smallest(sku) or problem.size <= SMALL
                if always or sku.element == subject_of(sku).spec.dtypes[0]:  # large ones with one element type
                    thoroughly = problem == smallest(sku) and sku == narrowest(sku)
                    check_accesses(problem, watched, thoroughly=thoroughly)
            placements.check_in_place(middling(sku), watched)
            for short in short_problems(subject_of(sku), sku):
                check_beginnings(short, watched)
            if subject_of(sku).spec.by_hand or not turning(sku).turns_once:
                with watched.multiprocessors(1):
                    check_accesses(turning(sku), watched, thoroughly=False)

    def test_gpu_code(sku: KernelSku) -> None:
        _need_nvrtc()
        subject, sampled = subject_of(sku), SAMPLE in os.environ
        any_space = Problem.kind_of(subject).walks_space
        small = [p for p in problems_of(sku.op, sku.symbol) if p.size <= SMALL]
        by_hand = small[-1:] if sampled else [*few(sku), *sorted(small, key=size_of)[-2:]]
        each = [p for p in of_each_code(sku) if p.size <= SMALL]
        spaces = [*each, *table.some("gpu_code", small, lambda problem: problem)]
        others = spaces if any_space else by_hand if subject.spec.by_hand else []
        for target in gpu_code.targets_of(sku, sampled=sampled):
            for problem in dict.fromkeys([smallest(sku), *others]):
                gpu_code.check_gpu_code(problem, target)
            if any_space:
                with ptx_mode(target) as memory:
                    placements.check_huge_strides(max(problems_of(sku.op, sku.symbol), key=twos), memory)

    def test_texts(sku: KernelSku) -> None:
        gpu_code.check_texts(middling(sku))

    def test_conversions(subject: Subject) -> None:
        _need_nvrtc()
        for target in (*TEXTS, gpu_code.OLDEST, gpu_code.NEWEST):
            check_conversions(target)
            check_functions(target)

    def _need_nvrtc() -> None:
        if find_spec("cuda.bindings") is None:
            pytest.skip("there is no NVRTC to compile PTX with")


def test_argument_refusals(sku: KernelSku, memory: Memory) -> None:
    refusals.check_arguments(smallest(sku), memory)


def test_preferences(sku: KernelSku) -> None:
    refusals.check_preferences(smallest(sku))


def test_requirements(subject: Subject) -> None:
    refusals.check_requirements(subject)


def test_types(subject: Subject) -> None:
    refusals.check_types(subject)


def test_elements(subject: Subject) -> None:
    refusals.check_elements(subject)


def test_declarations(subject: Subject) -> None:
    declarations.check_declarations(subject)


def test_definition(subject: Subject) -> None:
    check_definition(subject, 6 if SAMPLE in os.environ else None)
    check_derivation(subject, 2 if SAMPLE in os.environ else None)


def test_defaults(subject: Subject) -> None:
    check_defaults(subject, Path(os.environ.get(SPECS, HERE)))


def test_check_order(sku: KernelSku, memory: Memory) -> None:
    declarations.check_order(smallest(sku), memory)


def test_entry_points(sku: KernelSku, memory: Memory) -> None:
    declarations.check_entry_points(smallest(sku), memory)


def test_remembered(subject: Subject) -> None:
    for problem in large(subject):
        remembered.check_remembered(problem)
        remembered.check_streams(problem)


def test_capture(subject: Subject) -> None:
    for problem in large(subject):
        remembered.check_capture(problem)


def test_selections(subject: Subject) -> None:
    selections.check_served(subject)
    for problem in large(subject):
        selections.check_selections(problem)
        selections.check_pickles(problem)
        selections.check_measured_choices(problem)


def test_keys(subject: Subject) -> None:
    for problem in large(subject):
        keys.check_keys(problem)
