"""Invariant: headers and oracles beside a spec become part of what is generated, and nothing else does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from repository import ROOT

from baracuda.codegen.emit.generate import lower_all, texts
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import SpecError
from baracuda.runtime.compile.line_map import placed_lines

EXAMPLE = ROOT / "examples" / "running_sum" / "specs"


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "specs", ignore=shutil.ignore_patterns("__pycache__"))


def source(specs: Path) -> str:
    return texts(lower_all(load_folder(specs).values()))["custom/running_sum.cu"]


def test_headers_are_part_of_the_source(specs: Path) -> None:
    """Each once, where it is included, and messages name its own lines."""
    header = specs / "running_sum.cuh"
    header.write_text(header.read_text().replace('#include "step.cuh"', '#include "step.cuh"\n#include "step.cuh"'))
    text = source(specs)
    assert text.count("A after(A sum, A value)") == 1 and '#include "' not in text and "pragma once" not in text
    places = [(line, place) for place, line in placed_lines(text)]
    for name in ("step.cuh", "running_sum.cuh"):
        for number, line in enumerate((specs / name).read_text().splitlines(), 1):
            assert line.startswith("#") or (line, (f"specs/{name}", number)) in places


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("running_sum.cuh", '"step.cuh"', '"stp.cuh"', r"running_sum.cuh:4: there is no 'stp.cuh'; quotes are for"),
        ("running_sum.cuh", '"step.cuh"', '"/etc/passwd"', r"passwd: is a link that leads out of 'specs'"),
        ("running_sum.cuh", '"step.cuh"', '"../specs.cuh"', r"specs.cuh: is a link that leads out of 'specs'"),
        ("running_sum.yaml", "running_sum.cuh}", "other.cuh}", r"yaml:11: no header 'other.cuh' beside the spec"),
        ("running_sum.yaml", "running.running_sum", "runnin.sum", r"yaml:14: no runnin.py is beside the spec, and no"),
        ("running_sum.yaml", "running.running_sum", "running.sum", r"yaml:14: no oracle 'sum' in module 'running'"),
        ("running.py", "Definition(_errors, _values)", "Definition(_errors)", r"yaml:14: 'running.running_sum' bounds"),
        ("running.py", "def _values(", "def _values)(", r"running.py:12: this is no Python"),
    ],
)
def test_what_is_wrong_beside_a_spec_is_said_in_a_line(specs: Path, file: str, old: str, new: str, said: str) -> None:
    text = (specs / file).read_text()
    assert old in text
    (specs / file).write_text(text.replace(old, new))
    (specs.parent / "specs.cuh").write_text("// outside\n")
    with pytest.raises(SpecError) as caught:
        source(specs)
    assert re.search(said, str(caught.value)) and str(caught.value).count("\n") == 0


def test_modules_beside_a_spec_are_not_executed(specs: Path) -> None:
    module = specs / "running.py"
    module.write_text(module.read_text() + "raise SystemExit\n")
    assert "running_sum_main" in source(specs)


def test_calls_that_differ_between_gpus_are_seen(specs: Path) -> None:
    """As in the library's own headers."""
    step, spec = specs / "step.cuh", specs / "running_sum.yaml"
    step.write_text(step.read_text().replace("sum + value", "sum + math::exp(value)"))
    spec.write_text(spec.read_text() + "reproducibility: {y: [deterministic, bit_stable_across_arch]}\n")
    with pytest.raises(SpecError, match="the kernels call exp, which differ between machines"):
        source(specs)
