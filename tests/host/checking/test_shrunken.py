"""Smaller schedules: loops have several turns in small problems, and kernels that err only then are caught."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from repository import ROOT

from baracuda.checking.mutation.forked import Died, apart
from baracuda.checking.mutation.mutants.inline_headers import with_headers
from baracuda.checking.problems.cases import problems, skus
from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.shrunken import MULTIPROCESSORS, shrinks, shrunken_problems
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import HostMemory
from baracuda.checking.verify import checks
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import KernelInternal, KernelSku

LOADED = load_folder(ROOT / "specs")
# What is wrong only where blocks have several turns, or sums and copies a last part that is shorter; a kernel with it.
DEFECTS = {
    "as many copies in the last block": (
        "repeat_f32_t256_packs4_blocks1056",
        r"return I\(beyond < cut\.units \? beyond : cut\.units\);",
        "return I(beyond);",
    ),
    "next row of another block": (
        "rms_norm_backward_f32_row32x8x4",
        r"next = row \+ blocks \* Tile::ROWS;",
        "next = row + blocks;",
    ),
    "rounding errors forgotten": (
        "repeat_backward_f32_t256_packs4_blocks1056",
        r"low \+= \(high - \(sum - seen\)\) \+ \(term - seen\);",
        "",
    ),
}


def _kernel(symbol: str) -> tuple[Subject, KernelSku]:
    subjects = [Subject(loaded, LOADED, "baracuda.generated") for op, loaded in LOADED.items() if op in symbol]
    return next((subject, sku) for subject in subjects for sku in skus(subject) if sku.symbol == symbol)


def _problems(symbol: str) -> Iterator[Problem]:
    subject, sku = _kernel(symbol)
    return shrunken_problems(subject, sku, problems(subject, sku))


def _complaint(symbol: str, pattern: str, replacement: str) -> str:
    """What the check says of an edited kernel; "" if it is content."""
    for problem in _problems(symbol):
        plan: Any = problem.plan
        text, edits = re.subn(pattern, replacement, with_headers(plan._row.source.text, plan._row.source.path))
        assert edits, f"{pattern!r} is no longer in the text; write it anew"
        source = replace(plan._row.source, inline=text)
        problem.plan = type(plan)(plan.descriptor, replace(plan._row, source=source), plan.layouts)
        try:
            checks.check_shrunken(problem, HostMemory())
        except (AssertionError, KernelInternal) as error:
            return str(error)
    return ""


@pytest.mark.parametrize("defect", DEFECTS)
def test_defect_is_caught(defect: str) -> None:
    try:  # in a child: a broken kernel may write anywhere
        complaint = apart(lambda: _complaint(*DEFECTS[defect]), seconds=120)
    except Died as death:
        complaint = str(death)
    assert complaint, f"nobody noticed: {defect}"
    assert not complaint.startswith("exited"), f"the check itself failed: {complaint}"


def test_the_number_of_multiprocessors_is_set_back() -> None:
    memory = HostMemory()
    before = memory.device.multiprocessors
    assert before != MULTIPROCESSORS
    checks.check_shrunken(next(_problems("repeat_f32_t256_packs4_blocks1056")), memory)
    assert memory.device.multiprocessors == before


def test_numbers_of_work_shrink_and_those_of_tiles_do_not() -> None:
    for symbol, expected in {
        "rms_norm_backward_f32_row32x8x4": "row32x8x4b2r2",
        "repeat_f32_t256_packs4_blocks1056": "t32.packs4.blocks2",
        "flash_sdpa_f16_t128_block_q16_block_k16_stages3_splits128_blocks_per_sm2": (
            "t128.block_q16.block_k16.stages3.splits3.blocks_per_sm2"
        ),
    }.items():
        problem = next(_problems(symbol))
        assert str(problem.plan.sku.schedule) == expected and shrinks(_kernel(symbol)[1])
    assert not shrinks(_kernel("softmax_f32_row64x1x4")[1])


def test_problems_are_long_along_every_extent() -> None:
    several = list(islice(_problems("repeat_f32_t256_packs4_blocks1056"), 4))
    longest = {max((value, name) for name, (value,) in problem.case.items())[1] for problem in several}
    assert longest == {"input_shape", "repeats"}
    assert {37} < {value for problem in several for (value,) in problem.case.values()}
