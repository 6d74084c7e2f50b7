"""Invariant: `uniform_torch` has the bits of torch on a GPU, which recorded numbers show."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from repository import ROOT

from baracuda.codegen.emit.generate import write
from baracuda.codegen.project import Project

RECORDED = json.loads((ROOT / "tests" / "recorded" / "torch_random.json").read_text())
SPEC = """\
op: torch_rand
doc: What torch draws at some elements.
descriptor:
  seed: {type: int, doc: key}
  offset: {type: int, doc: of the generator before the call}
  threads: {type: int, doc: threads that torch runs}
  vector: {type: int, doc: elements of one of its threads}
require: [threads >= 1, vector >= 1]
dims: {cell: input_shape}
inputs: {at: {dtype: i64, doc: numbers of elements}}
outputs: {y: {dims: [cell], dtype: f32, doc: random numbers}}
program: y = uniform_torch(seed, offset, at, threads, vector)
reference: y = uniform_torch(seed, offset, at, threads, vector)
dtypes: [f32]
tests: {defaults: {seed: 1, offset: 4, threads: 256, vector: 1}, ranges: {at: [0, 4000]}}
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The plan class of an op that draws as torch does."""
    folder = tmp_path_factory.mktemp("torch_random")
    (folder / "specs").mkdir()
    (folder / "specs" / "torch_rand.yaml").write_text(SPEC)
    write(Project.read(folder / "specs").files, folder / "torch_random_plans")
    sys.path.append(str(folder))
    from torch_random_plans import TorchRandPlan  # type: ignore[import-not-found]

    sys.path.remove(str(folder))
    return TorchRandPlan


def drawn(plan: Any, row: dict[str, Any], vector: int) -> np.ndarray[Any, Any]:
    """What torch compares with, or returns, at the recorded elements."""
    blocks = min(8 * RECORDED["multiprocessors"], -(-row["count"] // (256 * vector)))
    element = np.arange(0, row["count"], row["step"])
    y = np.empty(element.shape, np.float32)
    numbers = {"seed": RECORDED["seed"], "offset": row["offset"], "threads": 256 * blocks, "vector": vector}
    descriptor = plan.DESCRIPTOR(input_shape=element.shape, element="f32", **numbers)
    plan.select(descriptor, device="host").run(at=element, y=y)
    return y


@pytest.mark.parametrize("row", RECORDED["rand"], ids=lambda row: row["count"])
def test_numbers_are_those_of_torch_rand(plan: Any, row: dict[str, Any]) -> None:
    assert drawn(plan, row, 1).view(np.int32).tolist() == row["bits"]


@pytest.mark.parametrize("row", RECORDED["dropout"], ids=lambda row: f"{row['dtype']}-{row['count']}")
def test_what_dropout_keeps_is_what_torch_keeps(plan: Any, row: dict[str, Any]) -> None:
    widest = 4 if row["dtype"] == "float32" else 8
    vector = widest if row["count"] % widest == 0 else 1
    kept = drawn(plan, row, vector) < 1 - row["p"]
    assert "".join("01"[int(value)] for value in kept) == row["kept"]
