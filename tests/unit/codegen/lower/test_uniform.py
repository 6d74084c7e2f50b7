"""Invariant: what costs much and has one value for all cells is computed before them, once for all who need it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from baracuda.codegen.emit.generate import texts
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.program import to_source
from baracuda.codegen.spec.load import load_spec

SPEC = """\
op: scaled
doc: Scaled numbers.
descriptor: {{n: int, p: {{type: float, doc: a number, default: 0.5}}{kind}}}
dims: {{cell: n}}
inputs:
  x: {{dims: [cell]}}
  s: {{dims: []}}
outputs:
  y: {{dims: [cell]}}
{program}
"""
KINDS = """\
kinds:
  once: {program: y = x / sqrt(s)}
  more: {program: "root = sqrt(s)\\ny = x * exp(p / size(cell)) + root"}
  other: {program: "root = exp(s)\\ny = x * root * p"}
"""


def kernel(folder: Path, text: str) -> tuple[list[str], str]:
    """The values that all cells share, and the kernel."""
    path = folder / "scaled.yaml"
    path.write_text(text, encoding="utf-8")
    op = lower(load_spec(path).spec, "scaled.yaml")
    (code,) = (code for name, code in texts([op]).items() if name.endswith(".cu"))
    return [to_source(value.expr) for value in op.bodies[0].shared], code


@pytest.mark.parametrize(
    ("program", "shared"),  # all of them read all there is
    [
        ("y = x * (1 / (1 - p))", ["1 / (1 - p)"]),
        ("y = x / (1 - p)", []),  # a quotient of x; the difference is one instruction
        ("y = x * (1 / s) - 1 / s", ["1 / s"]),
        ("y = -(1 / s) * x + 1 / s", ["1 / s"]),  # the sign is no part of what is kept
        ("y = x * exp(s * index(cell))", []),
        ("y = x * (s + p)", []),
        ("twice = sqrt(s)\ny = x * twice * (p / twice)", ["sqrt(s)", "p / twice"]),
    ],
)
def test_costly_parts_of_fields_and_numbers_are_shared(tmp_path: Path, program: str, shared: list[str]) -> None:
    lines = "program: |\n  " + program.replace("\n", "\n  ") + " + (s + p - s - p)"
    assert kernel(tmp_path, SPEC.format(kind="", program=lines))[0] == shared


def test_kinds_share_parts_but_no_lines(tmp_path: Path) -> None:
    shared, code = kernel(tmp_path, SPEC.format(kind=", kind: {type: kind, doc: which}", program=KINDS))
    assert shared == ["sqrt(s)", "exp(p / size(cell))", "exp(s)"]
    cells = code[code.index("lanes.each") :]
    assert not re.search(r"\b(sqrt|exp|exp_for|root_)\b", cells)
    assert cells.count("uniform_1_") == 2
