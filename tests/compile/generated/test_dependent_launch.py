"""Invariant: a kernel that may be started while the one before it ends waits for that one, and that one lets it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from repository import SPECS

from baracuda.codegen.families.body.spec import BodySpec
from baracuda.codegen.spec.load import load_folder
from baracuda.generated import FlashSdpaDescriptor, FlashSdpaPlan
from baracuda.runtime import view
from baracuda.runtime.compile.cubin import INCLUDE

SPECS = [one.spec for one in load_folder(SPECS).values()]
PAIRS = [
    (spec.op, before.name, kernel.name)
    for spec in SPECS
    if isinstance(spec, BodySpec)
    for before, kernel in zip(spec.kernels, spec.kernels[1:], strict=False)
    if kernel.overlaps
]
HEADERS = "\n".join(path.read_text() for path in sorted((INCLUDE / "baracuda").rglob("*.cuh")))


def body_of(function: str) -> str:
    found = re.search(rf"__device__ void {function}\(const Args& args\) {{\n(.*?)\n}}\n", HEADERS, re.DOTALL)
    assert found, function
    return found[1]


@pytest.mark.parametrize(("op", "before", "kernel"), PAIRS)
def test_one_waits_and_the_other_lets(op: str, before: str, kernel: str) -> None:
    first, wait, rest = body_of(f"{op}_{kernel}").partition("wait_on_dependent_grids();")
    assert wait and "args.part_" not in first and "args.part_" in rest
    assert "launch_dependent_grids();" in body_of(f"{op}_{before}")


def test_the_launch_says_so() -> None:
    sizes = {"batch_size": 1, "num_heads": 2, "query_len": 1, "key_len": 600, "d_k": 8, "d_v": 8}
    plan = FlashSdpaPlan.select(FlashSdpaDescriptor(**sizes, is_causal=False, scale=1.0, element="f32"))
    views = {name: view(np.zeros(shapes[0], np.float32), name) for name, shapes in plan.shapes().items()}
    assert [launch.overlaps for launch in plan._launches(views, 1 << 20)] == [False, True]
