"""Problems as lines of text: what a run records is read back as the same problem."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from baracuda.cli.packs.problems import Problem, read_problems
from baracuda.codegen.project import PACKAGE
from baracuda.generated import (
    AdamWDescriptor,
    AdamWPlan,
    FlashSdpaDescriptor,
    FlashSdpaPlan,
    RMSNormDescriptor,
    RMSNormPlan,
    UnaryDescriptor,
    UnaryPlan,
)
from baracuda.runtime import PlanPreference
from baracuda.runtime.devices.architecture import Architecture
from baracuda.runtime.errors import BaracudaError, Unsupported
from baracuda.runtime.plans.recorded import pack_command, problem_line

GPU = Architecture("sm_90", "sm_90")
ROWS = RMSNormDescriptor(input_shape=(4, 64), norm_axes_mask=2, eps=1e-6, has_gamma=False, element="f16")
ATTENTION = FlashSdpaDescriptor(
    batch_size=2,
    num_heads=8,
    num_kv_heads=2,
    query_len=64,
    key_len=96,
    d_k=64,
    d_v=64,
    scale=0.125,
    is_causal=True,
    bottom_right=True,
    element="bf16",
)
CASES: list[tuple[Any, Any, dict[str, Any], dict[str, str]]] = [
    (RMSNormPlan, ROWS, {}, {}),
    (RMSNormPlan, ROWS, {"layouts": ["packed", "gathered"]}, {"rms": "f16"}),
    (FlashSdpaPlan, ATTENTION, {}, {}),
    (FlashSdpaPlan, ATTENTION, {"preference": PlanPreference(archs=frozenset({"sm_80"}), tuned=False)}, {}),
    (RMSNormPlan, ROWS, {"preference": PlanPreference(max_workspace_bytes=0, rungs=frozenset({"deterministic"}))}, {}),
    (UnaryPlan, UnaryDescriptor(kind="gelu", input_shape=(7,), element="f32"), {}, {}),
    (AdamWPlan, AdamWDescriptor(numel=8, element="f16"), {}, {"g": "f32"}),
]


@pytest.mark.parametrize(("kind", "descriptor", "select", "dtypes"), CASES)
def test_what_is_recorded_is_read_back(kind: Any, descriptor: Any, select: Any, dtypes: Any) -> None:
    """Descriptor, preference, layouts and element types survive, and so do the kernels."""
    plan = kind.select(descriptor, device=GPU, **select)
    line = problem_line(plan, lambda: dtypes)
    read = Problem.read(line, PACKAGE)
    again = read.plan.select(read.descriptor, device=GPU, **read.select)
    assert (again.descriptor, again._preference, again.layouts) == (plan.descriptor, plan._preference, plan.layouts)
    assert set(read.dtypes.items()) <= set(dtypes.items())
    assert problem_line(again, lambda: read.dtypes) == line
    wanted = read.wanted("sm_90")
    assert {kernel.source for kernel in wanted} == set(plan._sources_on(GPU, dtypes)) != set()
    assert {kernel.sku for kernel in wanted} <= {row.sku for row in kind.kernels()}
    assert f"--arch sm_90 --problem '{line}'" in pack_command(plan, lambda: dtypes, "sm_90")


def test_each_architecture_gets_the_kernel_that_is_selected_there() -> None:
    """What is recorded on one GPU is packed for others: sm_90's attention is code of its own."""
    read = Problem.read(problem_line(FlashSdpaPlan.select(ATTENTION, device=GPU), dict), PACKAGE)
    assert {kernel.arch for kernel in read.wanted("sm_80")} == {"sm_80"}
    assert "sm_90a" in {kernel.arch for kernel in read.wanted("sm_90")}
    read = Problem.read(f"{read.line} select.archs=sm_90a", PACKAGE)
    with pytest.raises(Unsupported):
        read.wanted("sm_80")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no plan ''"),
        ("RMSNormPlan 'eps=1", "No closing quotation"),
        ("RMSNormPlam eps=1", "did you mean 'RMSNormPlan'"),
        ("no.such.RMSNormPlan eps=1", "no package 'no.such'"),
        ("RMSNormPlan epps=1", "did you mean 'eps'"),
        ("SoftmaxPlan input_shape=4 softmax_axis=0 element=f32 select.arch=sm_80", "did you mean 'archs'"),
        ("SoftmaxPlan input_shape=4 softmax_axis=0 element=f32 select.tuned=maybe", "must be true or false"),
        ("SoftmaxPlan input_shape=4 softmax_axis=0 element=f32 dtypes.x", "gives no value"),
    ],
)
def test_a_wrong_line_is_an_error_that_names_it(line: str, message: str, tmp_path: Path) -> None:
    """Also in a file, whose line the error names."""
    with pytest.raises(BaracudaError, match=re.escape(message)):
        read_problems([line], None, PACKAGE)
    if line:
        file = tmp_path / "problems.txt"
        file.write_text(f"# a comment\n\n{line}\n")
        with pytest.raises(BaracudaError, match=re.escape(f"{file}:3: ")):
            read_problems([], file, PACKAGE)
