"""Invariant: kernels compute whole numbers with 32 bits only where a bound says that these hold them all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from baracuda.codegen.emit.generate import texts
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.spec.load import load_spec

SPEC = """\
op: moved
doc: Elements of other places.
descriptor: {{n: int, m: int{fields}}}
dims: {{i: n, j: m}}
inputs:
{inputs}outputs:
  y: {{dims: [i]}}
program: {line}
"""
FIELDS = {"k": ", k: {type: int, doc: a distance, default: 1}", "s": ", s: {type: int, doc: a step, default: 1}"}
INPUTS = {"x": "  x: {dims: [j], outside: 0}\n", "ids": "  ids: {dims: [i], dtype: [i64]}\n"}
INPUTS |= {"b": "  b: {dims: [i, j]}\n"}


def lowered(folder: Path, line: str) -> tuple[tuple[str, ...], str]:
    """The bounds of a program, and its kernel."""
    names = {*re.findall(r"\w+", line)}
    fields, inputs = ("".join(text for name, text in of.items() if name in names) for of in (FIELDS, INPUTS))
    path = folder / "moved.yaml"
    path.write_text(SPEC.format(fields=fields, inputs=inputs, line=line), encoding="utf-8")
    op: Any = lower(load_spec(path).spec, "moved.yaml")
    (code,) = (code for name, code in texts([op]).items() if name.endswith(".cu"))
    return op.bounds, code


@pytest.mark.parametrize(
    ("line", "bounds"),
    [
        ("y = x[index(i) + k]", ("_i + _k",)),
        ("y = x[index(i) - k]", ("_i + _k",)),
        ("y = x[index(i) * s - k]", ("_i * _s + _k",)),
        ("y = x[(index(i) + k) * s]", ("(_i + _k) * _s",)),
        ("y = x[(index(i) + k) // s]", ("_i + _k", "_s")),
        ("y = x[(index(i) + k) // 3]", ("_i + _k",)),
        ("y = x[where(index(i) < k, index(i) + 1, s)]", ("_i + 1", "_k", "_s")),
        ("y = x[where(index(i) < k, 1000000000, s) * 3]", ("1000000000 * 3", "_i", "_k", "_s * 3")),
        ("y = x[index(i) ^ 1]", ("2 * (_i + 1)",)),
        ("y = x[size(i) - 1 - index(i)]", ("_i + 1 + _i",)),
        ("y = x[index(i)]", ("_i",)),
        ("y = ids * k + x[ids]", ("_k",)),
        ("y = x[index(i) << k]", ("_i", "_k")),
    ],
)
def test_the_bound_of_a_program(tmp_path: Path, line: str, bounds: tuple[str, ...]) -> None:
    assert lowered(tmp_path, line)[0] == bounds


def test_what_arrays_hold_and_shift_has_64_bits(tmp_path: Path) -> None:
    for line in ("y = x[ids]", "y = x[ids + index(i)]", "y = x[index(i) << k]"):
        _, code = lowered(tmp_path, line)
        assert re.search(r"PlacedValue<acc_t, T, 0, \w+<i64", code), line
    assert re.search(r"PlacedValue<acc_t, T, 0, \w+<whole_t", lowered(tmp_path, "y = x[index(i) + k]")[1])


def test_a_bound_that_is_long_is_none(tmp_path: Path) -> None:
    assert lowered(tmp_path, f"y = x[{' + '.join(['index(i) * k'] * 20)}]")[0] == ()
    assert "whole_t" not in lowered(tmp_path, f"y = x[{' + '.join(['index(i) * k'] * 20)}]")[1]


def test_numbers_that_no_place_is_made_of_need_no_bound(tmp_path: Path) -> None:
    assert lowered(tmp_path, "y = sum(where(index(i) < k, b, 2.0), j)")[0] == ()


def test_lines_that_double_the_one_before_take_no_time(tmp_path: Path) -> None:
    for step in ("{0} + {0} * {0}", "where({0} < s, {0} + 1, {0} * s)"):
        lines = [f"a{n + 1} = {step.format(f'a{n}')}" for n in range(40)]
        assert lowered(tmp_path, "|\n  " + "\n  ".join(["a0 = index(i) + k", *lines, "y = x[a40]"]))[0] == ()
