"""Sums of exponentials of what is below the largest of a row, which kernels make in the pass that finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from baracuda.codegen.families.row.lower import lower_row
from baracuda.codegen.families.row.op import RowOp
from baracuda.codegen.families.row.spec import RowSpec
from baracuda.codegen.spec.load import load_spec

SPEC = """\
op: made
doc: A test.
source: nowhere
descriptor: {axis: {doc: "the axis of columns"}}
dims: {r: rest, c: axis}
inputs: [x]
outputs: {y: {doc: what is made}}
program: |
  {program}
"""


def _lowered(tmp_path: Path, *lines: str) -> RowOp:
    path = tmp_path / "specs" / "row" / "made.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SPEC.replace("{program}", "\n  ".join(lines)))
    spec = load_spec(path).spec
    assert isinstance(spec, RowSpec)
    return lower_row(spec, "made.yaml")


@pytest.mark.parametrize(
    "lines",
    [
        ("y = exp(x - max(x, c)) / sum(exp(x - max(x, c)), c)",),
        ("top = stop_gradient(max(x, c))", "e = exp(x - top)", "y = e / sum(e, c)"),
        ("z = 2.0 * x", "away = z - max(z, c)", "y = away - log(sum(exp(away), c))"),
    ],
)
def test_the_largest_and_the_sum_below_it_are_one_pass(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """Of two looks: the sum's comes second, and with it those of everything else but the largest."""
    first, last = _lowered(tmp_path, *lines).passes
    largest, below = first.looks
    assert [r.kind for r in largest.reductions] == ["max"]
    assert [r.largest for r in below.reductions] == [str(largest.reductions[0].name)]
    assert len(last.looks) == 1 and last.stores


def test_what_lines_reduce_again_is_reduced_once(tmp_path: Path) -> None:
    """By the name of the first: one largest and one sum, whether a line of its own asks for it or a part of one."""
    lines = "m = max(x, c)", "n = max(x, c)", "s = sum(exp(x - m), c)", "y = x / s - n / sum(exp(x - max(x, c)), c)"
    first, last = _lowered(tmp_path, *lines).passes
    assert [[str(r.name) for r in look.reductions] for look in first.looks] == [["m"], ["s"]]
    assert last.stores


@pytest.mark.parametrize(
    "line",
    [
        "y = sum(exp(x - max(2.0 * x, c)), c) * x",  # of other numbers
        "y = sum(exp(x - min(x, c)), c) * x",
        "y = sum(x * exp(x - max(x, c)), c) * x",  # with a weight
        "y = sum(exp(max(x, c) - x), c) * x",
    ],
)
def test_other_sums_wait_for_what_they_need(tmp_path: Path, line: str) -> None:
    passes = _lowered(tmp_path, line).passes
    assert len(passes) == 3 and all(len(along.looks) == 1 for along in passes)


def test_what_is_summed_beside_it_is_added_in_the_second_look(tmp_path: Path) -> None:
    """So that the first only compares."""
    op = _lowered(tmp_path, "y = x - mean(x, c) - log(sum(exp(x - max(x, c)), c)) - max(x, c)")
    largest, below = op.passes[0].looks
    assert largest.largest and not below.largest
    assert {r.kind for r in below.reductions} == {"sum", "mean"}
