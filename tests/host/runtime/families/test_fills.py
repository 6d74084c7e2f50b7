"""What lies outside of an array is a number of the accumulator, which programs compute with before they round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec

SPEC = """\
op: sample
doc: A sample.
descriptor: {cols: int, fill: {type: float, doc: what lies outside, default: 0.5}}
dims: {j: cols}
inputs: {a: {dims: [j], outside: fill}}
outputs: {y: {dims: [j]}}
program: y = a[index(j) + 8] * 3.0
"""


@pytest.mark.parametrize("fill", [0.5, 0.3])
def test_a_fill_is_rounded_once_it_was_computed_with(tmp_path: Path, fill: float) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(SPEC)
    op: Any = lower(load_spec(path).spec, "sample.yaml")
    plan = plan_of(op, rows_of(op, texts([op])["custom/sample.cu"]))
    chosen = plan.select(plan.DESCRIPTOR(element="bf16", cols=32, fill=fill), device="host")
    a, y = np.arange(32).astype(ml_dtypes.bfloat16), np.zeros(32, ml_dtypes.bfloat16)
    chosen._run((a, y), None, None)
    wanted = (np.float32(fill) * np.float32(3)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(y[:24], (a[8:].astype(np.float32) * 3).astype(ml_dtypes.bfloat16))
    assert np.array_equal(y[24:], np.full(8, wanted))
