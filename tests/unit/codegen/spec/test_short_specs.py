"""Invariant: what a spec leaves out follows from the rest, and what it says itself comes first."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from baracuda.cli.make.new import new
from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.families.row.spec import RowSpec
from baracuda.codegen.spec.default_tests import with_usual
from baracuda.codegen.spec.defaults import filled
from baracuda.codegen.spec.family import families
from baracuda.codegen.spec.load import checked, load_folder
from baracuda.codegen.spec.schema import schema_text
from baracuda.codegen.spec.spec import OpSpec
from baracuda.codegen.spec.yaml_source import YamlSource, read_yaml
from baracuda.runtime import SpecError
from baracuda.runtime.plans.sku import RUNGS

SHORT_ROW = """\
op: row_norm
doc: Each row divided by its norm.
descriptor:
  eps: {type: float, doc: added below the root}
dims: {rows: rest, cols: axis}
inputs: {x: what is scaled, gain: {dims: [cols], optional: has_gain, default: 1}}
outputs: {y: the result, norm: {dims: [rows], dtype: acc, doc: norm of each row}}
program: |
  norm = sqrt(sum(x * x, cols) + eps)
  y = x * gain / norm
reference: |
  norm = sqrt(sum(x ** 2, cols) + eps)
  y = x / norm * gain
tests: {defaults: {eps: 1.0e-6}}
"""
LONG_ROW = """\
op: row_norm
category: norms
direction: forward
plan: RowNormPlan
family: row
doc: Each row divided by its norm.
formula: |
  norm = sqrt(sum(x * x, cols) + eps)
  y = x * gain / norm
source: the formula above
descriptor:
  input_shape: {type: shape, doc: "extents of x and y, rank 1 to 8"}
  axis: {type: int, default: -1, doc: the axis that cols runs along; negative counts from the back}
  eps: {type: float, doc: added below the root}
  has_gain: {type: bool, doc: whether there is gain}
require:
  - {that: 1 <= len(input_shape) <= 8, raises: Unsupported}
  - {that: -len(input_shape) <= axis < len(input_shape), raises: InvalidProblem}
  - {that: min(input_shape) >= 0, raises: InvalidProblem}
  - {that: isfinite(eps), raises: InvalidProblem}
dtypes: [f32, f16, bf16, f64]
dims:
  rows: {of: input_shape, axes: rest}
  cols: {of: input_shape, axes: "(normalize_axis(axis, len(input_shape)),)"}
inputs:
  x: {dims: [rows, cols], doc: what is scaled}
  gain: {dims: [cols], optional: has_gain, default: 1, doc: input}
outputs:
  y: {dims: [rows, cols], may_alias: [x], doc: the result}
  norm: {dims: [rows], dtype: acc, doc: norm of each row}
program: |
  norm = sqrt(sum(x * x, cols) + eps)
  y = x * gain / norm
reference: |
  norm = sqrt(sum(x ** 2, cols) + eps)
  y = x / norm * gain
reproducibility:
  y: [deterministic, bit_stable_on_same_hardware, batch_invariant, bit_stable_across_arch]
  norm: [deterministic, bit_stable_on_same_hardware, batch_invariant, bit_stable_across_arch]
arch: {sm_80: {}}
tests: {defaults: {eps: 1.0e-6}}
"""
SHORT_MAP = """\
op: scaled
doc: Each row times its factor.
descriptor: {batch: int, width: int}
dims: {b: batch, w: width}
inputs: [x, factor]
outputs: [y]
program: y = x * factor
reference: y = factor * x
"""


BARE = """\
op: soft_sign
doc: Each element over one plus its magnitude.
inputs: [x]
outputs: [y]
program: y = x / (1 + abs(x))
"""


def load(folder: Path, text: str) -> OpSpec:
    path = folder / "norms" / "short.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return checked(read_yaml(path), "specs/norms/short.yaml").spec


def test_names_fields_conditions_and_promises_follow(tmp_path: Path) -> None:
    short, long = load(tmp_path, SHORT_ROW), load(tmp_path, LONG_ROW)
    assert short.model_dump() == long.model_dump()
    assert isinstance(short, RowSpec) and len(short.tests.cases) == 9  # one of them without the gain
    assert [case for case in short.tests.cases if case.get("has_gain") is False] == [
        {"input_shape": [5, 64], "axis": 1, "has_gain": False}
    ]


def test_a_map_of_ints_is_one(tmp_path: Path) -> None:
    spec = load(tmp_path, SHORT_MAP)
    assert isinstance(spec, MapSpec) and spec.tests.batch == "batch" and {*spec.tests.draw} == {"batch", "width"}
    assert [r.that for r in spec.require] == ["min(batch, width) >= 0"]
    assert spec.descriptor["width"].doc == "extent of w" and spec.outputs["y"].may_alias == ("x", "factor")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("0 <= len(input_shape) <= 3", ["-len(input_shape) <= axis < len(input_shape)",
                                          "len(input_shape) == 0 or min(input_shape) >= 0"]),
        ("min(input_shape) >= 1", ["1 <= len(input_shape) <= 8", "-len(input_shape) <= axis < len(input_shape)"]),
    ],
)
def test_a_condition_of_its_own_takes_the_place_of_an_implied_one(
    tmp_path: Path, own: str, expected: list[str]
) -> None:
    spec = load(tmp_path, SHORT_ROW + f"require: [{own}, isfinite(eps) and eps > 0]\n")
    assert [r.that for r in spec.require] == [*expected, own, "isfinite(eps) and eps > 0"]


@pytest.mark.parametrize("text", [SHORT_ROW, SHORT_MAP], ids=["row", "map"])
def test_editors_take_it(text: str, tmp_path: Path) -> None:
    valid = Draft202012Validator(json.loads(schema_text())).is_valid
    assert valid(read_yaml(_written(tmp_path, text)).data)
    assert not valid(read_yaml(_written(tmp_path, text.replace("dims: {", "dim: {"))).data)


def test_infinite_fields_are_for_the_asking(tmp_path: Path) -> None:
    spec = load(tmp_path, SHORT_ROW.replace("{type: float, ", "{type: float, finite: false, "))
    assert not any("isfinite" in r.that for r in spec.require)


def test_a_line_is_that_of_the_file_whatever_comes_before(tmp_path: Path) -> None:
    text = SHORT_ROW + "require:\n  - eps >= 0\n  - epsilon < 1\n"
    line = text.splitlines().index("  - epsilon < 1") + 1
    with pytest.raises(SpecError, match=f":{line}: unknown field 'epsilon'"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("program", "missing"),
    [
        ("y = exp(x) * factor", {"bit_stable_across_arch"}),
        ("y = x * factor / size(b)", {"batch_invariant"}),
        ("y = x * factor * index(b)", {"batch_invariant"}),
        ("y = x * factor * index(w)", set()),
    ],
)
def test_promises_are_those_that_the_program_can_keep(tmp_path: Path, program: str, missing: set[str]) -> None:
    spec = load(tmp_path, SHORT_MAP.replace("y = x * factor\n", f"{program}\n", 1))
    assert set(spec.reproducibility["y"]) == {*RUNGS} - missing


def test_a_sum_promises_nothing_of_batches(tmp_path: Path) -> None:
    text = SHORT_MAP.replace("outputs: [y]", "outputs: {y: {dims: [w]}}").replace("y = ", "y = sum(")
    spec = load(tmp_path, text.replace("* factor\n", "* factor, b)\n").replace("* x\n", "* x, b)\n"))
    assert "batch_invariant" not in spec.reproducibility["y"] and not spec.outputs["y"].may_alias


def test_what_is_read_elsewhere_is_not_overwritten(tmp_path: Path) -> None:
    data = read_yaml(_written(tmp_path, SHORT_MAP)).data | {"program": "y = x[b, w - 1] * factor"}
    source = filled(YamlSource(tmp_path, data, {(): 1}, {}), "specs/scaled.yaml")
    assert source.data["outputs"]["y"]["may_alias"] == ["factor"] and source.data["category"] == "custom"


def _written(folder: Path, text: str) -> Path:
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    return folder / "a.yaml"


def test_usual_problems_keep_the_requirements(tmp_path: Path) -> None:
    spec: Any = load(tmp_path, SHORT_MAP + "require: [width % 16 == 0]\n")
    assert spec.tests.cases and all(case["width"] % 16 == 0 for case in spec.tests.cases)
    assert with_usual(spec).cases == spec.tests.cases  # none twice


def test_a_spec_may_be_tested_on_its_own_problems_only(tmp_path: Path) -> None:
    spec = load(tmp_path, SHORT_MAP + "tests: {usual: false, cases: [{batch: 3, width: 5}]}\n")
    assert spec.tests.cases == [{"batch": 3, "width": 5}] and not spec.tests.draw


def test_a_field_without_a_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no case to test; give eps in tests\.defaults, or list some in tests\.cases"):
        load(tmp_path, SHORT_ROW.replace("tests: {defaults: {eps: 1.0e-6}}\n", ""))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("family", sorted(name for name, family in families().items() if family.skeleton))
def test_a_spec_to_start_from_is_one(family: str, gradient: bool, tmp_path: Path) -> None:
    path = new("begun", family, "sums", tmp_path / "specs", gradient=gradient)
    loaded = load_folder(tmp_path / "specs")
    assert [*loaded] == ["begun", "begun_backward"][: 1 + gradient]
    assert {entry.spec.family for entry in loaded.values()} == {family}
    assert Draft202012Validator(json.loads(schema_text())).is_valid(read_yaml(path).data)


def test_a_folder_is_a_category(tmp_path: Path) -> None:
    folder = tmp_path / "specs" / "sums"
    folder.mkdir(parents=True)
    _written(folder, SHORT_MAP)
    assert load_folder(tmp_path / "specs")["scaled"].spec.category == "sums"


def test_arrays_of_one_shape_need_no_dims(tmp_path: Path) -> None:
    short = load(tmp_path, BARE)
    assert short == load(tmp_path, BARE.replace("inputs:", "dims: {cell: input_shape}\ninputs:"))
    with pytest.raises(SpecError, match="'dims' is missing"):
        load(tmp_path, BARE.replace("inputs: [x]", "inputs: {x: [row, col]}"))


def test_a_list_is_the_dims_of_a_tensor(tmp_path: Path) -> None:
    short = SHORT_MAP.replace("inputs: [x, factor]", "inputs: {x: [b, w], factor: [b]}")
    long = SHORT_MAP.replace("inputs: [x, factor]", "inputs: {x: {dims: [b, w]}, factor: {dims: [b]}}")
    assert load(tmp_path, short) == load(tmp_path, long) != load(tmp_path, SHORT_MAP)


@pytest.mark.parametrize("text", ["-inf", "-.inf"])
def test_a_place_outside_of_an_array_may_be_infinite(text: str, tmp_path: Path) -> None:
    moved = SHORT_MAP.replace("inputs: [x, factor]", f"inputs: {{x: {{outside: {text}}}, factor: [b]}}")
    moved = moved.replace("reference: y = factor * x\n", "").replace("x * factor", "x[b, w - 1] * factor")
    assert load(tmp_path, moved).inputs["x"].outside == -math.inf  # type: ignore[attr-defined]
