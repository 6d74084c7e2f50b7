"""Reductions over all elements of lists, on the host device, against NumPy in float64."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda import ops
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.errors import SpecError
from baracuda.codegen.spec.load import load_spec
from baracuda.generated import ClipNormDescriptor, ClipNormPlan

HEAD = """\
op: sample
doc: A sample.
family: list
descriptor: {numel: int}
dims: {cell: numel}
inputs: {x: {}, z: {}}
"""
# Outputs, lines, over how many walks, and what NumPy says of x and z.
PROGRAMS: dict[str, tuple[str, str, int, Any]] = {
    "extremes and a count": (
        "{top: {dims: [], dtype: acc}, low: {dims: [], dtype: acc}, many: {dims: [], dtype: i64}}",
        "top = max(abs(x), cell)\nlow = min(z, cell)\nmany = count(x > z, cell)",
        1,
        lambda x, z: {"top": abs(x).max(), "low": z.min(), "many": (x > z).sum()},
    ),
    "mean and variance": (
        "{mu: {dims: [], dtype: acc}, spread: {dims: [], dtype: acc}}",
        "mu = mean(x, cell)\nspread = where(any(z > 99, cell), 0, var(x, cell))",
        1,
        lambda x, z: {"mu": x.mean(), "spread": x.var()},
    ),
    "an update, and a norm of what it gives": (
        "{x_new: {updates: x}, before: {dims: [], dtype: acc}, after: {dims: [], dtype: acc}}",
        "before = norm2(x, cell)\nx_new = x / before + z\nafter = sum(square(x / before + z), cell)",
        2,
        lambda x, z: {"x": x / np.linalg.norm(x) + z, "after": ((x / np.linalg.norm(x) + z) ** 2).sum()},
    ),
    "three walks": (
        "{x_new: {updates: x}}",
        "m = mean(x, cell)\ns = sum(abs(x - m), cell)\nx_new = (x - m) / s * size(cell)",
        3,
        lambda x, z: {"x": (x - x.mean()) / abs(x - x.mean()).sum() * x.size},
    ),
}


@pytest.fixture
def watched() -> Iterator[None]:
    device: Any = rt.get_device("host")
    device.check = True
    yield
    device.check = False


def _plan(tmp_path: Path, outputs: str, lines: str, numel: int) -> Any:
    path = tmp_path / "sample.yaml"
    head = HEAD if re.search(r"\bz\b", lines) else HEAD.replace(", z: {}", "")
    path.write_text(f"{head}outputs: {outputs}\nprogram: |\n" + "".join(f"  {x}\n" for x in lines.splitlines()))
    op = lower(load_spec(path).spec, "sample.yaml")
    plan = plan_of(op, rows_of(op, texts([op])["custom/sample.cu"]))
    return plan.select(plan.DESCRIPTOR(element="f32", numel=numel))


def _run(plan: Any, **arrays: Any) -> None:
    scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8)
    plan._run(tuple(arrays.get(name) for name in plan.ARGUMENTS), scratch, None)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_are_of_all_arrays(tmp_path: Path, name: str) -> None:
    """Of arrays of many sizes, some empty, and of more than one launch takes."""
    outputs, lines, walks, right = PROGRAMS[name]
    for sizes in ([5], [0, 3, 5000, 0, 1], [3] * 1700):
        rng = np.random.default_rng(len(sizes))
        lists = {n: [rng.normal(size=size).astype(np.float32) for size in sizes] for n in "xz"}
        due = right(*(np.concatenate(lists[n]).astype(np.float64) for n in "xz"))
        plan = _plan(tmp_path, outputs, lines, sum(sizes))
        assert len(plan.PASSES or (None,)) == walks
        lists = {n: arrays for n, arrays in lists.items() if n in plan.ARGUMENTS}
        found = {n: np.full((), 99, plan.elements_of(n)[0].row.numpy) for n in plan.ARGUMENTS if n not in lists}
        _run(plan, **lists, **found)
        got = {**found, **{n: np.concatenate(arrays) for n, arrays in lists.items()}}
        for output, value in due.items():
            label = f"{output}, {len(sizes)} arrays"
            np.testing.assert_allclose(got[output], value, rtol=2e-5, atol=2e-5, err_msg=label)


def test_lists_of_nothing_have_neutral_reductions(tmp_path: Path) -> None:
    lines = "total = sum(x, cell)\ntop = max(x, cell)"
    plan = _plan(tmp_path, "{total: {dims: [], dtype: acc}, top: {dims: [], dtype: acc}}", lines, 0)
    found = {n: np.full((), 99, np.float32) for n in ("total", "top")}
    _run(plan, x=[np.zeros(0, np.float32)] * 3, **found)
    assert (found["total"], found["top"]) == (0, -np.inf)


def test_a_norm_depends_on_the_sizes_of_arrays_alone() -> None:
    """Not on their places, their alignment, or other arrays of size 0."""
    rng, sizes = np.random.default_rng(1), [700, 3, 90000, 41]
    arrays = [rng.normal(size=size).astype(np.float32) for size in sizes]
    bits = set()
    for shift in (0, 1, 3):
        memory = [np.zeros(a.size + 4, np.float32) for a in arrays]
        moved = [m[shift : shift + a.size] for m, a in zip(memory, arrays, strict=True)]
        for to, a in zip(moved, arrays, strict=True):
            to[:] = a
        bits.add(ops.clip_norm([*moved, *[np.zeros(0, np.float32)] * shift]).tobytes())
    assert len(bits) == 1


def test_clipping_leaves_small_gradients_alone() -> None:
    g = [np.full(5, 0.1, np.float32), np.full(3, -0.2, np.float32)]
    norm = ops.clip_norm(g, limit=9.0)
    assert norm == pytest.approx(np.sqrt(5 * 0.01 + 3 * 0.04))
    assert (g[0] == np.float32(0.1)).all() and (g[1] == np.float32(-0.2)).all()


def test_a_reduction_takes_a_workspace() -> None:
    plan = ClipNormPlan.select(ClipNormDescriptor(numel=10, element="f32"))
    with pytest.raises(rt.WorkspaceTooSmall):
        plan.run(g=[np.zeros(10, np.float32)], norm=np.zeros((), np.float32))


@pytest.mark.parametrize(
    ("outputs", "lines", "says"),
    [
        ("{at: {dims: [], dtype: i64}}", "at = argmax(x, cell)", "argmax is of an element's place"),
        ("{x_new: {updates: x}}", "x_new = x + index(cell)", "index is of an element's place"),
        ("{x_new: {updates: x}, one: {dims: []}}", "x_new = x + 1\none = 2.0", "'one' rests on no reduction over cell"),
    ],
)
def test_what_lists_cannot_say(tmp_path: Path, outputs: str, lines: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        _plan(tmp_path, outputs, lines, 1)
