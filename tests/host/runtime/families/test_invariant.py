"""Sums of maps that promise the same bits in a batch of any size: their order follows from the number of terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec
from baracuda.generated import MoeCombineDescriptor, MoeCombinePlan

ALL = "[deterministic, bit_stable_on_same_hardware, batch_invariant, bit_stable_across_arch]"
HEAD = """\
op: sample
doc: A sample.
descriptor: {rows: int, cols: int}
tests: {batch: rows}
reproducibility: {PROMISED}
"""
# Dims in order, what is summed over (of the batch `i` and of `j`), and a program.
ROWS = ("{i: rows, j: cols}", "{y: {dims: [i]}}", "y = sum(a, j)")
COLUMNS = ("{j: cols, i: rows}", "{y: {dims: [i]}}", "y = sum(a, j)")
PASSES = ("{i: rows, j: cols}", "{y: {dims: [i, j]}}", "y = a / sqrt(sum(a * a, j))")


def spec_of(path: Path, dims: str, outputs: str, line: str, promised: str = f"y: {ALL}") -> Any:
    inputs = f"inputs: {{a: {{dims: [{'i, j' if dims.startswith('{i') else 'j, i'}]}}}}\n"
    head = HEAD.replace("{PROMISED}", f"{{{promised}}}")
    path.write_text(f"{head}dims: {dims}\n{inputs}outputs: {outputs}\nprogram: {line}\n")
    return load_spec(path).spec


def plan_for(spec: Any, **fields: Any) -> Any:
    op = lower(spec, "sample.yaml")
    plan = plan_of(op, rows_of(op, texts([op])["custom/sample.cu"]))
    return plan.select(plan.DESCRIPTOR(element="f32", **fields))


def values(spec: Any, a: Any) -> Any:
    plan = plan_for(spec, rows=a.shape[0], cols=a.shape[1])
    (shape,) = plan.shapes()["y"]
    y, scratch = np.full(shape, 99, np.float32), np.full(plan.workspace_bytes, 0xAA, np.uint8)
    a = a if spec.inputs["a"].dims == ("i", "j") else np.ascontiguousarray(a.T)
    plan._run((a, y), scratch if scratch.size else None, None)
    return y


@pytest.mark.parametrize("columns", [3, 1000, 70_000, 1_100_000])
@pytest.mark.parametrize("program", [ROWS, COLUMNS, PASSES], ids=["rows", "columns", "passes"])
def test_a_row_has_its_bits_in_every_batch(tmp_path: Path, program: tuple[str, str, str], columns: int) -> None:
    """Alone too, whether a thread, a block or several add up its terms."""
    spec = spec_of(tmp_path / "sample.yaml", *program)
    rows = {3: 300, 1000: 300, 70_000: 40, 1_100_000: 5}[columns]
    a = np.random.default_rng(3).normal(size=(rows, columns)).astype(np.float32)
    whole = values(spec, a)
    wide = a.astype(np.float64)
    exact = wide / np.sqrt(np.square(wide).sum(1))[:, None] if whole.ndim == 2 else wide.sum(1)
    np.testing.assert_allclose(whole, exact, rtol=1e-5, atol=0 if whole.ndim == 2 else 1e-2)
    for first, last in ((0, 1), (rows - 1, rows), (1, 4)):
        assert np.array_equal(values(spec, np.ascontiguousarray(a[first:last])), whole[first:last]), (first, last)


def test_without_the_promise_speed_comes_first(tmp_path: Path) -> None:
    """It has a price, so that no sum promises it by itself."""
    path = tmp_path / "sample.yaml"
    free = spec_of(path, *COLUMNS, promised="")
    assert "batch_invariant" not in free.reproducibility["y"]
    cuts = [plan_for(spec, rows=n, cols=64)._cut for n in (1, 100_000) for spec in (free, spec_of(path, *COLUMNS))]
    (few, few_promised), (many, many_promised) = cuts[:2], cuts[2:]
    assert few.walk != many.walk
    assert (few_promised.walk, few_promised.slices) == (many_promised.walk, many_promised.slices)


@pytest.mark.parametrize(
    ("dims", "outputs", "line"),
    [
        ("{i: rows, j: cols}", "{y: {dims: [j]}}", "y = sum(a, i)"),
        ("{i: rows, j: cols}", "{y: {dims: [i]}}", "y = sum(a / sum(a, i), j)"),
    ],
    ids=["over it", "behind it"],
)
def test_sums_over_the_batch_cannot_promise_it(tmp_path: Path, dims: str, outputs: str, line: str) -> None:
    with pytest.raises(rt.SpecError, match="'y' is a sum, which depends on how much is summed; drop batch_invariant"):
        spec_of(tmp_path / "sample.yaml", dims, outputs, line)


def test_sums_by_an_index_cannot_promise_it(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(
        "op: sample\ndoc: A sample.\ndescriptor: {rows: int, cols: int, seen: int}\ntests: {batch: rows}\n"
        "dims: {i: rows, j: cols, k: seen}\ninputs: {a: {dims: [k, j]}, ids: {dims: [k], dtype: i32}}\n"
        f"outputs: {{y: {{dims: [i, j]}}}}\nreproducibility: {{y: {ALL}}}\n"
        "program: y = sum(where(ids == index(i), a, 0.0), k)\n"
    )
    with pytest.raises(rt.SpecError, match="drop batch_invariant"):
        load_spec(path)


def test_a_layer_of_experts_has_a_row_s_bits_alone_and_in_a_batch() -> None:
    """Few rows used to share out a row's experts between threads."""
    rng, rows, places = np.random.default_rng(4), 512, 512 * 8
    arrays = {
        "rows": rng.normal(size=(places, 64)).astype(np.float32),
        "places": rng.permutation(places).astype(np.int32).reshape(rows, 8),
        "weights": rng.random((rows, 8)).astype(np.float32),
    }

    def combined(first: int, last: int) -> Any:
        problem = MoeCombineDescriptor(tokens=last - first, top_k=8, permuted=places, width=64, element="f32")
        plan, y = MoeCombinePlan.select(problem), np.empty((last - first, 64), np.float32)
        part = {n: a if n == "rows" else a[first:last] for n, a in arrays.items()}
        plan.run(**part, y=y)
        return y

    assert "batch_invariant" in MoeCombinePlan.PROMISES["y"]
    whole = combined(0, rows)
    assert all(np.array_equal(combined(row, row + 1)[0], whole[row]) for row in (0, 1, 200, rows - 1))
