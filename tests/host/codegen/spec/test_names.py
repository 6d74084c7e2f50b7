"""Names of a spec mean what its author means by them, whatever the generator, its headers or CUDA call theirs."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from repository import LONG, ROOT

from baracuda.codegen.conditions.values import FUNCTIONS
from baracuda.codegen.emit.generate import generate, lower_all, texts
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.names import KEYWORDS, LANGUAGE, OF_OPS, interface
from baracuda.runtime import REGISTRY, SpecError

ROW = """
op: probe
category: probes
direction: forward
plan: ProbePlan
family: row
doc: A row times its sum of squares, and sums of its columns.
formula: y = x * sum(x * x)
source: the definition
descriptor:
  shape: {type: shape, doc: extents}
  FIELD: {type: float, doc: added to the sum, default: 2.0}
require:
  - {that: len(shape) == 2, raises: Unsupported}
dtypes: [f32]
dims:
  ROWDIM: {of: shape, axes: rest}
  COLDIM: {of: shape, axes: "(1,)"}
inputs:
  TENSOR: {dims: [ROWDIM, COLDIM], doc: what is read}
  GAIN: {dims: [COLDIM], doc: a factor of each column}
outputs:
  OUT: {dims: [ROWDIM, COLDIM], doc: the result}
  TOTAL: {dims: [COLDIM], doc: sums of columns}
program: |
  LINE = sum(TENSOR * TENSOR, COLDIM)
  PART = TENSOR * GAIN * (LINE + FIELD) + index(COLDIM)
  OUT = PART
  TOTAL = sum(PART, ROWDIM)
reference: |
  LINE = sum(TENSOR * TENSOR, COLDIM)
  OUT = TENSOR * GAIN * (LINE + FIELD) + index(COLDIM)
  TOTAL = sum(OUT, ROWDIM)
reproducibility: {OUT: [], TOTAL: []}
arch: {sm_80: {}}
tests: {cases: [{shape: [3, 8]}]}
"""

MAP = """
op: probe
category: probes
direction: forward
plan: ProbePlan
family: map
doc: Sums over the columns of what is scaled and shifted by its place.
formula: y = sum(x * gain + column + field)
source: the definition
descriptor:
  ROWFIELD: {type: int, doc: rows}
  COLFIELD: {type: int, doc: columns}
  FIELD: {type: float, doc: added, default: 2.0}
require:
  - {that: ROWFIELD >= 0 and COLFIELD >= 0, raises: InvalidProblem}
dtypes: [f32]
dims:
  ROWDIM: {of: ROWFIELD}
  COLDIM: {of: COLFIELD}
inputs:
  TENSOR: {dims: [ROWDIM, COLDIM], doc: what is read}
  GAIN: {dims: [ROWDIM], doc: a factor of each row}
outputs:
  OUT: {dims: [ROWDIM, COLDIM], doc: the result}
  TOTAL: {dims: [ROWDIM], doc: sums of rows}
program: |
  LINE = TENSOR * GAIN
  OUT = LINE + index(COLDIM) + FIELD
  TOTAL = sum(LINE + index(COLDIM) + FIELD, COLDIM) + size(COLDIM)
reference: |
  OUT = TENSOR * GAIN + index(COLDIM) + FIELD
  TOTAL = sum(OUT, COLDIM) + size(COLDIM)
reproducibility: {OUT: [], TOTAL: []}
arch: {sm_80: {}}
tests: {cases: [{ROWFIELD: 3, COLFIELD: 8}]}
"""
ROLES = ("TENSOR", "GAIN", "OUT", "TOTAL", "LINE", "PART", "FIELD", "ROWDIM", "COLDIM", "ROWFIELD", "COLFIELD")

# What the generator, its headers, CUDA, C and Python call something of theirs.
ORDINARY = """
    left end fold value value_of slide row_axes across across_stride walk wide t operand class_ half k i row lane rows
    cols col args tile home first block blocks space stage live read write pack slice part parts sum_ next own shared
    dynamic fetch column stretch turn vec chunks apart index_t acc_t i64_ f16_ baracuda math_ layout dtype arrays plan
    descriptor device sku run bind select d s v a self_ tuple str property len_ min_ threadidx blockidx half2 float4
    size_t std stdin printf isinf signbit si_addr sa_handler st_atime major minor gamma y0 environ x_row x_ cells terms
    kept cut whole to copy places kernel kernel_args
""".split()  # noqa: SIM905


def made(folder: Path, template: str, names: dict[str, str]) -> ModuleType:
    """The package generated of `template` with each role called as `names` says."""
    text = re.sub(rf"\b({'|'.join(ROLES)})\b", lambda role: names[role[0]], template)
    (folder / "specs").mkdir()
    (folder / "specs" / "probe.yaml").write_text(text)
    package = f"made_{folder.name}".replace("-", "_").replace("[", "_").replace("]", "_")
    generate(folder / "specs", folder / package)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(f"{package}.probes.probe")
    finally:
        sys.path.remove(str(folder))


def in_turn(count: int) -> list[dict[str, str]]:
    """Names for all roles, `count` times: each word has several roles in turn."""
    step = len(ORDINARY) // len(ROLES) + 1
    return [
        {role: ORDINARY[(at + step * place) % len(ORDINARY)] for place, role in enumerate(ROLES)}
        for at in range(0, step, max(1, step // count))
    ]


@pytest.mark.parametrize("names", in_turn(6), ids=str)
def test_rows_are_computed_whatever_they_are_called(tmp_path: Path, names: dict[str, str]) -> None:
    with REGISTRY.apart():
        module = made(tmp_path, ROW, names)
        x = np.arange(24, dtype=np.float32).reshape(3, 8) - 7
        gain = np.arange(8, dtype=np.float32)
        y, total = np.full_like(x, np.nan), np.full(8, np.nan, np.float32)
        plan = module.ProbePlan.select(module.ProbeDescriptor(shape=(3, 8), element="f32", **{names["FIELD"]: 5.0}))
        arrays = {names["TENSOR"]: x, names["GAIN"]: gain, names["OUT"]: y, names["TOTAL"]: total}
        plan.run(**arrays, workspace=np.empty(plan.workspace_bytes, np.uint8))
    right = x * gain * ((x * x).sum(axis=1, keepdims=True) + 5) + np.arange(8)
    assert np.array_equal(y, right) and np.array_equal(total, right.sum(axis=0))


@pytest.mark.parametrize("names", in_turn(6), ids=str)
def test_cells_are_computed_whatever_they_are_called(tmp_path: Path, names: dict[str, str]) -> None:
    with REGISTRY.apart():
        module = made(tmp_path, MAP, names)
        x = np.arange(24, dtype=np.float32).reshape(3, 8) - 7
        gain = np.arange(3, dtype=np.float32)
        y, total = np.full_like(x, np.nan), np.full(3, np.nan, np.float32)
        fields = {names["ROWFIELD"]: 3, names["COLFIELD"]: 8, names["FIELD"]: 5.0}
        plan = module.ProbePlan.select(module.ProbeDescriptor(element="f32", **fields))
        arrays = {names["TENSOR"]: x, names["GAIN"]: gain, names["OUT"]: y, names["TOTAL"]: total}
        plan.run(**arrays, workspace=np.empty(plan.workspace_bytes, np.uint8))
    right = x * gain[:, None] + np.arange(8) + 5
    assert np.array_equal(y, right) and np.array_equal(total, right.sum(axis=1) + 8)


def test_a_name_of_the_walk_no_longer_hides_a_sum(tmp_path: Path) -> None:
    """`left` is what a walk along a row once called the columns that are left."""
    names = {**in_turn(1)[0], "LINE": "left", "TENSOR": "x", "OUT": "y", "FIELD": "end"}
    with REGISTRY.apart():
        module = made(tmp_path, ROW, names)
        x, y = np.full((1, 8), 2, np.float32), np.empty((1, 8), np.float32)
        plan = module.ProbePlan.select(module.ProbeDescriptor(shape=(1, 8), element="f32", end=0.0))
        arrays = {"x": x, "y": y, names["GAIN"]: np.ones(8, np.float32), names["TOTAL"]: np.empty(8, np.float32)}
        plan.run(**arrays, workspace=np.empty(plan.workspace_bytes, np.uint8))
    assert np.array_equal(y[0], 64 + np.arange(8))


def test_the_documented_list_is_the_whole_list() -> None:
    """docs/spec-language.md lists every reserved word, and no other."""
    text = (ROOT / "docs" / "spec-language.md").read_text()
    section = text.partition("### Reserved words")[2].partition("\n## ")[0].partition("\n### ")[0]
    rows = re.findall(r"^\|[^|]*\|(.*)\|$", section, re.MULTILINE)
    listed = {word for row in rows for word in re.findall(r"\w+", row)}
    assert listed - {"words"} == KEYWORDS | interface() | LANGUAGE | set(FUNCTIONS) | OF_OPS | {"import_all"}


BODY = (LONG / "causal_conv1d.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("SILU: use_silu}", "SILU: use_silu, HAS_BIAS: use_silu}", "Variant has 'HAS_BIAS' already, for inputs.bias"),
        ("SILU: use_silu}", "SILU: use_silu, STRIDED: use_silu}", "Variant has 'STRIDED' already"),
        ("  run: time", "  class: lanes\n  run: time", "'class' is a reserved word"),
        ("  run: time", "  lambda: lanes\n  run: time", "'lambda' is a reserved word"),
        ("layouts:\n", "layouts:\n  not: {x: -1}\n", "'not' is a reserved word"),
        ("  run: time", "  threads: lanes\n  run: time", "'threads' means something else"),
        ("{name: main, grid", "{name: args, grid", "'causal_conv1d_args' is the type of the kernel's arguments"),
        ("channels:   {type: int", "import:   {type: int", "'import' is a reserved word"),
        ("seq_len:    {type: int", "stream:    {type: int", "'stream' is a reserved word"),
    ],
)
def test_names_that_a_body_could_not_tell_apart_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in BODY
    (tmp_path / "op.yaml").write_text(BODY.replace(old, new, 1))
    with pytest.raises(SpecError) as refused:
        load_folder(tmp_path)
    assert said in str(refused.value)


def test_settings_called_like_tensors_and_types_are_settings(tmp_path: Path) -> None:
    """A type that the caller chooses, a flag and a setting reach a kernel by macros of their own."""
    settings = ", ".join(f"{name}: width" for name in ("WEIGHT", "LAYOUT", "TYPE_WEIGHT", "HOST"))
    text = BODY.replace("SILU: use_silu}", f"SILU: use_silu, {settings}}}")
    (tmp_path / "op.yaml").write_text(text)
    (op,) = lower_all(load_folder(tmp_path).values())
    kernel = texts([op])["convolution/causal_conv1d.cu"]
    for name in ("WEIGHT", "LAYOUT", "TYPE_WEIGHT", "HOST"):
        assert f"static constexpr int {name} = BARACUDA_SETTING_{name};" in kernel
    assert "using weight_type = BARACUDA_TYPE_WEIGHT;" in kernel
