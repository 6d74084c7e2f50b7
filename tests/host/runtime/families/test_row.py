"""The row family: what a kernel relies on and its launch provides."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import baracuda.runtime as rt
from baracuda.checking.verify import run
from baracuda.codegen.emit.generate import generate
from baracuda.generated import RMSNormBackwardDescriptor, RMSNormBackwardPlan


@pytest.mark.parametrize("beside", [-16, 16])
def test_a_launch_reserves_what_is_prefetched_and_no_more(beside: int) -> None:
    descriptor = RMSNormBackwardDescriptor(input_shape=(64, 512), norm_axes_mask=2, has_gamma=True, element="f32")
    plan = RMSNormBackwardPlan.select(descriptor)
    source = next(source for source in plan.sources() if source.dynamic_shared)
    bytes_there = source.dynamic_shared + beside
    told = {f"DYN_SHARED_BYTES={source.dynamic_shared}": f"DYN_SHARED_BYTES={bytes_there}"}
    defines = tuple(told.get(define, define) for define in source.defines)
    device = rt.get_device("host")
    device.load(source)
    with pytest.raises(rt.CompileError, match="the launch reserves the packs"):
        device.load(replace(source, defines=defines, dynamic_shared=bytes_there))


GAIN = """op: gain
doc: Columns times their gains.
formula: y = x * gamma
source: none

descriptor:
  axis: {doc: the axis of the columns}
dims: {rows: rest, cols: axis}
inputs:
  x: what is multiplied
  gamma: {dims: [cols], doc: gain of each column}
outputs: {y: the result}
program: y = x * gamma
reference: y = x * gamma

tests:
  cases:
    - {input_shape: [5, 97], axis: 1}
"""


def test_a_misaligned_row_in_place_that_is_not_reduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No barrier stands between what one thread reads and another stores, so no thread reads what others store."""
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "gain.yaml").write_text(GAIN)
    generate(specs, tmp_path / "gains")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert run(specs, "gains", check=True, extra=["-k", "in_place and f32_row"]) == 0
