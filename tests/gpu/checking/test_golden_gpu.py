"""Invariant: on a GPU, kernels compute the bits of their golden hashes: those promised everywhere, and its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from baracuda.checking.golden import table
from baracuda.checking.golden.hashes import fitting, golden_of
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import memory_of
from baracuda.cli.prove.golden import column_of
from baracuda.codegen.spec.load import load_folder

SPECS = Path(__file__).parents[3] / "specs"
LOADED = load_folder(SPECS)
RECORDED = table.read(SPECS)


@pytest.mark.gpu
@pytest.mark.parametrize("op", LOADED)
def test_bits_are_those_of_the_golden_hashes(op: str) -> None:
    (arch, device), lines = column_of("cuda"), table.of_op(RECORDED, op)
    subject = Subject(LOADED[op], LOADED, "baracuda.generated")
    computed = golden_of(fitting(subject, arch, table.silent(lines, device)), memory_of("cuda"))
    assert [*table.complaints(op, lines, computed, device, arch)] == []
