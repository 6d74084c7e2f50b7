"""Invariant: whatever a file holds, it is refused in short lines that name theirs, or becomes what can be launched."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repository import LONG, SPECS

import baracuda.runtime as rt
from baracuda.checking.listing.planned import planned_variants
from baracuda.checking.problems.cases import refuse_bad_cases
from baracuda.checking.problems.subject import Subject
from baracuda.cli.kernels.explain import Architecture
from baracuda.cli.memo import Question
from baracuda.codegen.emit.generate import lower_all, texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.spec.load import Loaded, checked, load_folder, load_spec
from baracuda.codegen.spec.tuned import read_table, read_tables
from baracuda.codegen.spec.yaml_source import MAX_KEY, MAX_VALUES, YamlSource, read_yaml
from baracuda.runtime import InvalidProblem, SpecError, Unsupported
from baracuda.runtime.plans.tuned import Tuned

CONV = LONG / "causal_conv1d.yaml"
GRID = 'grid: ["max(1, ceil_div(channels, owned) * parts)"]'
ROW = "  - {arch: sm_80, dtypes: [f64], threads: 64, numbers: {lanes: 32, owned: 1, time: 8, steps: 8, batch: 3}}\n"


def edited(*changes: str, path: Path = CONV) -> str:
    """The text of a spec, each `old => new` of `changes` made once."""
    text = path.read_text(encoding="utf-8")
    for change in changes:
        old, new = change.split(" => ")
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def said(text: str, folder: Path) -> str:
    """What is wrong with a spec, without the path."""
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(folder / "x.yaml")
    return "\n".join(line.rpartition(f"{folder}/x.yaml:")[2] for line in str(caught.value).splitlines())


# What is edited in causal_conv1d, and what is said.
TABLE: list[tuple[str, str]] = [
    # launches
    (f"{GRID} => {GRID}, shared: '-5'", "58: '-5' is never more than -5; needs what is 0 or more"),
    (f"{GRID} => {GRID}, shared: -5", "58: 'kernels[0].shared' is -5; needs a number >= 0"),
    (f"{GRID} => {GRID}, shared: '1.5'", "58: must be of kind int, got '1.5' of kind float"),
    (f"{GRID} => {GRID}, threads: 100000", "58: 'kernels[0].threads' is 100000; needs a number <= 1024"),
    (f"{GRID} => {GRID}, threads: 33", "58: 'kernels[0].threads' is 33; needs a multiple of 32"),
    (f"{GRID} => {GRID}, threads: 2 * lanes", "needs text that matches"),
    (f"{GRID} => {GRID}, threads: steps", "needs a multiple of 32 up to 1024, got 2"),
    (f"{GRID} => grid: [-1]", "58: 'kernels[0].grid[0]' is -1; needs a number >= 0"),
    (f"{GRID} => grid: ['-1']", "58: '-1' is never more than -1; needs what is 0 or more"),
    (f"{GRID} => grid: [1.5]", "58: 'kernels[0].grid[0]' is 1.5"),
    (f"{GRID} => grid: ['1.5']", "58: must be of kind int, got '1.5' of kind float"),
    (f"{GRID} => grid: [channels // 0]", "58: divides by zero"),
    (f"{GRID} => grid: ['(channels,)']", "58: must be of kind int, got '(channels,)' of kind tuple"),
    (f"{GRID} => {GRID}, when: channels", "58: must be of kind bool, got 'channels' of kind int"),
    (f"{GRID} => {GRID}, when: 1 % 0 == 0", "58: divides by zero"),
    ("threads: 128, numbers => threads: 1056, numbers", "65: 'schedules[0].threads' is 1056; needs a number <= 1024"),
    ("body: {sm_80: => workspace: {part: {size: '-1'}}\nbody: {sm_80:", "'-1' is never more than -1; needs what is 0"),
    ("threads: 128, numbers => math: tf32x3, threads: 128, numbers",
     "65: is for f32 only, but the schedule is for f16, bf16, f64 too"),
    ("threads: 128, numbers => math: tf32, threads: 128, numbers", "65: 'schedules[0].math' is 'tf32'"),
    # names
    ("lanes: 4, => 'null': 4,", "65: 'null' is a reserved word: NULL is a macro; choose another name"),
    ("lanes: 4, => lanes: 4, k2: 1,", "65: key 'k2'; needs text that matches ^[a-z][a-z_]{0,31}$"),
    ("lanes: 4, => lanes: null,", "65: 'schedules[0].numbers.lanes' is null; needs an integer"),
    ("lanes: 4, => lanes: 4294967296,", "65: 'schedules[0].numbers.lanes' is 4294967296; needs a number < 2147483648"),
    ("lanes: 4, => lanes: -4,", "65: 'schedules[0].numbers.lanes' is -4; needs a number >= 0"),
    ("oracle: => pinned: {None: {arch: sm_80, doc: d}}\noracle:", "75: key 'None'; needs text that matches"),
    ("oracle: => pinned: {Any: {arch: sm_80, doc: d}}\noracle:", "75: key 'Any'; needs text that matches"),
    # twice
    (f"  - {{name: main, {GRID}}} => {f'  - {{name: main, {GRID}}}' + chr(10)}  - {{name: main, grid: [1]}}",
     "59: 'main' is already kernel 0; rename one"),
    (f"{ROW} => {ROW}{ROW}", "72: differs from schedule 6 in no arch, dtype, threads or number; leave one"),
    ("dtypes: [f64], threads => dtypes: [f64, f64], threads", "71: lists one twice: f64, f64"),
    ("dtypes: [f32, f16, bf16, f64]\n => dtypes: [f32, f16, f32]\n", "31: lists one twice: f32, f16, f32"),
    ("dtype: [i32, i64] => dtype: [i32, i32]", "lists one twice: i32, i32"),
    # texts
    ("oracle: => pinned: {XPlan: {arch: sm_80, doc: 'a \"\"\" b'}}\noracle:", "cannot stand in a comment of gen"),
    # lines
    ("fits: seq_len <= 64 => fits: \"seq_len\\n<= 64\"", "65: 'schedules[0].fits' is 'seq_len\\n<= 64'; needs text"),
    ("fits: seq_len <= 64 => fits: 'seq_len <= 64 # \"\"\"'", "65: 'schedules[0].fits' is"),
    # shapes
    ('shape: "(channels,)" => shape: "x x x ..."', "36: not an expression"),
    ('shape: "(channels,)" => shape: "(channels // 0,)"', "36: divides by zero"),
    ('shape: "(channels,)" => shape: "((channels,),)"', "36: an element of a tuple must be an int"),
    ('shape: "(channels,)" => shape: "(1.5,)"', "36: an element of a tuple must be an int"),
    ('shape: "(channels,)" => shape: "channels"', "36: must be of kind tuple, got 'channels' of kind int"),
    ('shape: "(channels,)" => shape: "(1,) + (2,)"', "36: '(1,) + (2,)' is no shape; write '(rows, cols)'"),
    ('shape: "(channels,)" => shape: "(channels,)", shapes: ["(1, 2)"]', "36: has 2 axes, more than `shape`, which"),
    (f'shape: "(channels,)" => shape: "({"1, " * 17})"', "36: 'bias' has 17 axes; the most is 16"),
    ("body: {sm_80: => tensor_maps: {sm_80: {x: '&a'}}\nbody: {sm_80:", "needs text that matches"),
    ("body: {sm_80: => tensor_maps: {sm_80: {x: 'a b'}}\nbody: {sm_80:", "not an expression"),
    ("body: {sm_80: => tensor_maps: {sm_80: {x: '(1,)'}}\nbody: {sm_80:", "'(1,)' is no box; write '(rows, columns)'"),
    # settings and requirements
    ("SILU: use_silu => SILU: '0.5'", "must be of kind bool or int, got '0.5' of kind float"),
    ("SILU: use_silu => SILU: '(1,)'", "must be of kind bool or int, got '(1,)' of kind tuple"),
    ("that: 2 <= width <= 8 => that: width", "27: must be of kind bool, got 'width' of kind int"),
    # tests
    ("seq_len: {low: 0, high: 2000} => seq_len: {low: 5, high: 2}", "91: a range goes from low to high in 64 bits"),
    ("seq_len: {low: 0, high: 2000} => seq_len: {low: 0, high: 2, rank: [1, 2]}", "91: a shape is drawn with a rank"),
    ("seq_len: {low: 0, high: 2000} => seq_len: [1, null]", "91: needs values of type int to choose among"),
    ("batch: batch_size => batch: use_silu", "86: needs an int or a shape, whose first extent counts; got a bool"),
    # oracles
    ("oracle: convolution.causal_conv1d => oracle: os.system", "no module 'os' of oracles is installed"),
    ("oracle: convolution.causal_conv1d => oracle: convolution.np", "no oracle 'np' in module 'convolution'"),
    ("causal_conv1d\nprecision => causal_conv1d_backward\nprecision", "bounds errors of a gradient, and has no values"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), TABLE, ids=range(len(TABLE)))
def test_what_cannot_be_launched_is_refused(change: str, message: str, tmp_path: Path) -> None:
    found = said(edited(change), tmp_path)
    assert message in found and re.match(r"\d+: ", found)


def test_entry_points_of_one_name_are_refused_however_it_is_made(tmp_path: Path) -> None:
    """A number behind the schedule's, or before the kernel's name: both would be `..._t32_a1_b2_main`."""
    kernels = f"  - {{name: main, {GRID}}} => {f'  - {{name: main, {GRID}}}' + chr(10)}  - {{name: b2_main, grid: [1]}}"
    one = "  - {arch: sm_80, dtypes: [f64], threads: 32, numbers: {lanes: 1, owned: 1, time: 1, steps: 1, batch: 1"
    text = edited(kernels, f"{ROW} => {ROW}{one}}}}}\n{one}, b: 2}}}}\n")
    assert "differs from schedule 7 in no arch, dtype, threads or number; leave one" in said(text, tmp_path)


def test_plan_classes_of_two_specs_differ(tmp_path: Path) -> None:
    for name, pinned in (("a", "BPlan"), ("b", "CPlan")):
        changes = [f"op: causal_conv1d\n => op: {name}\n", f"plan: CausalConv1dPlan => plan: {name.upper()}Plan"]
        changes += [f"oracle: => pinned: {{{pinned}: {{arch: sm_80, doc: d}}}}\noracle:"]
        (tmp_path / f"{name}.yaml").write_text(edited(*changes), encoding="utf-8")
    with pytest.raises(SpecError, match=r"b\.yaml:6: plan 'BPlan' is already in .*a\.yaml; rename one"):
        load_folder(tmp_path)


def test_a_gradient_differentiates_each_input_once_and_an_op_of_its_kind(tmp_path: Path) -> None:
    back = LONG / "softmax_backward.yaml"
    assert "names 'y' twice" in said(edited("cotangents: {dy: y} => cotangents: {dy: y, y: y}", path=back), tmp_path)
    (tmp_path / "x.yaml").write_text(edited("of: softmax => of: causal_conv1d", path=back), encoding="utf-8")
    (tmp_path / "y.yaml").write_text(edited(), encoding="utf-8")
    with pytest.raises(SpecError, match="op 'causal_conv1d' is of family body: a body's derivative is a body"):
        load_folder(tmp_path)


# Plans: what only the problem decides is refused when it is known.


def plan_with(folder: Path, *changes: str) -> Any:
    """The plan class of causal_conv1d, edited."""
    (folder / "x.yaml").write_text(edited(*changes), encoding="utf-8")
    (op,) = lower_all([load_spec(folder / "x.yaml")])
    return plan_of(op, rows_of(op, "", "made"), "made")


PROBLEM = {"batch_size": 2, "channels": 3, "seq_len": 100, "width": 4, "use_silu": True, "element": "f32"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (f"{GRID} => {GRID}, shared: 3 - channels * 2", "needs -3 bytes of shared memory for main"),
        (f"{GRID} => {GRID}, shared: channels * 1000000", "takes 3000000 bytes of shared memory a block"),
        (f"{GRID} => grid: [2 - channels]", "needs a grid of (-1, 1, 1) blocks for main, none may be negative"),
        (f"{GRID} => grid: [1, channels * 65535]", "needs a grid of (1, 196605, 1) blocks for main, the largest is"),
        (f"{GRID} => grid: [8 // (channels - 3)]", "division or modulo by zero"),
        ("body: {sm_80: => workspace: {part: {size: 2 - channels}}\nbody: {sm_80:", "needs -1 elements of workspace"),
        ("SILU: use_silu => SILU: channels * 1000000000", "constant SILU is 3000000000; needs an int of 32 bits"),
        ('shape: "(channels,)" => shape: "(channels - 5,)"', "'bias' would be of shape (-2,); needs no negative"),
    ],
)
def test_a_problem_that_cannot_be_launched_is_refused(change: str, message: str, tmp_path: Path) -> None:
    plan = plan_with(tmp_path, change)
    with pytest.raises((InvalidProblem, Unsupported)) as caught:
        plan.select(plan.DESCRIPTOR(**PROBLEM), device=Architecture("sm_90", "sm_90"))
    assert message in str(caught.value)


def test_a_grid_is_looked_at_again_on_its_device(tmp_path: Path) -> None:
    """How many multiprocessors there are is known there alone."""
    plan = plan_with(tmp_path, f"{GRID} => grid: [2 - multiprocessors]")
    chosen = plan.select(plan.DESCRIPTOR(**PROBLEM), device=Architecture("sm_90", "sm_90"))
    chosen._serving = lambda *_: (chosen._row, "strided")
    with pytest.raises(Unsupported, match=r"needs a grid of \(-130, 1, 1\) blocks for main, none may be negative"):
        chosen._geometry({}, replace(Architecture("sm_90", "sm_90"), multiprocessors=132))


# Files: looked at before they are read.


def test_files_that_are_none_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A folder, a pipe nobody writes to, three gigabytes, a device."""
    (tmp_path / "a.yaml").mkdir()
    os.mkfifo(tmp_path / "b.yaml")
    with (tmp_path / "c.yaml").open("wb") as file:
        file.truncate(3 << 30)
    started = time.process_time()
    with pytest.raises(SpecError) as caught:
        load_folder(tmp_path)
    lines = str(caught.value).splitlines()
    assert [line.rpartition("/")[2] for line in lines] == [
        "a.yaml: this is no file; needs a yaml file",
        "b.yaml: this is no file; needs a yaml file",
        "c.yaml:1: the file is larger than 262144 bytes; split it",
    ]
    assert Question(tmp_path, (), ("generate",)).recall() is None
    with pytest.raises(SpecError, match="/dev/zero: this is no file"):
        read_yaml(Path("/dev/zero"))
    assert time.process_time() - started < 1


def test_a_link_shows_nothing_of_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "specs" / "tuned" / "sm_90").mkdir(parents=True)
    (tmp_path / "secret").write_text("password: hunter2\n: :", encoding="utf-8")
    (tmp_path / "specs" / "x.yaml").symlink_to(tmp_path / "secret")
    with pytest.raises(SpecError) as caught:
        load_folder(tmp_path / "specs")
    assert str(caught.value) == "specs/x.yaml: is a link that leads out of 'specs'; put the file itself there"
    (tmp_path / "specs" / "tuned" / "sm_90" / "x.json").symlink_to(tmp_path / "secret")
    with pytest.raises(SpecError, match="is a link that leads out of the specs"):
        read_tables(tmp_path / "specs")
    (tmp_path / "specs" / "x.yaml").unlink()
    (tmp_path / "specs" / "real").write_text(edited(), encoding="utf-8")
    (tmp_path / "specs" / "x.yaml").symlink_to("real")
    (tmp_path / "specs" / "tuned" / "sm_90" / "x.json").unlink()
    assert list(load_folder(tmp_path / "specs")) == ["causal_conv1d"]


def test_values_and_keys_of_a_file_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [" + "1," * MAX_VALUES + "]", encoding="utf-8")
    with pytest.raises(SpecError, match=f"the file has more than {MAX_VALUES} values; split it"):
        read_yaml(path)
    path.write_text("k" * (MAX_KEY + 1) + ": 1", encoding="utf-8")
    with pytest.raises(SpecError, match=f"is longer than {MAX_KEY} characters; shorten it"):
        read_yaml(path)


ENDLESS = "x" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        f"a: &{ENDLESS} 1",
        f"a: *{ENDLESS}",
        f"a: !{ENDLESS} 1",
        f"op: {ENDLESS}",
        f"a: {'9' * 100_000}",
        "{" + "".join(f"descripto{i}: 1, " for i in range(4900)) + "}",
        "dtypes: [" + "x, " * 9000 + "]",
        "tests: {cases: [" + "{x: 1}, " * 3000 + "]}",
        "".join(f"? [a, b]\n: {i}\n" for i in range(2000)),
    ],
    ids=["anchor", "alias", "tag", "text", "digits", "keys", "items", "cases", "lists as keys"],
)
def test_messages_are_short_and_cost_little(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    started = time.process_time()
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "x.yaml")
    assert time.process_time() - started < 2  # about 0.3 s
    lines = str(caught.value).splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) < 800


def test_what_is_wrong_in_hundreds_of_cases_costs_little(tmp_path: Path) -> None:
    """A misspelt name is compared with the others a hundred times, not for each case."""
    spec = dict(read_yaml(CONV).data)  # what is read is kept, so it is not to be changed
    spec["tests"] = spec["tests"] | {"cases": [{f"seq_le{i}": 1 for i in range(20)}] * 200}
    (tmp_path / "x.yaml").write_text(json.dumps(spec), encoding="utf-8")
    started = time.process_time()
    with pytest.raises(SpecError, match=r"\(and 70 more\)"):
        load_spec(tmp_path / "x.yaml")
    assert time.process_time() - started < 2  # about 0.4 s


def test_terms_of_terms_are_not_written_out_without_end(tmp_path: Path) -> None:
    """Each of these is twice the one before; written out, the last would have 2^50 names."""
    terms = "".join(f"  {'t' * (i + 1)}: {'t' * i or 'width'} + {'t' * i or 'width'}\n" for i in range(50))
    text = edited("terms:\n => terms:\n" + terms, "fits: seq_len <= 64 => fits: " + "t" * 50 + " > 0")
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    (op,) = lower_all([load_spec(tmp_path / "x.yaml")])
    assert max(map(len, texts([op]).values())) < 100_000


def test_validation_imports_no_oracle() -> None:
    """Definitions are Python code; whether one is there is read off its module's text."""
    code = f"""
import sys
from pathlib import Path
from baracuda.codegen.spec.load import load_folder
load_folder(Path({str(SPECS)!r}))
print([name for name in sys.modules if ".verify.oracles" in name])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Measurements.

ROWS = [
    {
        "element": "f32",
        "same": {"packed": 0},
        "near": {"cols": 12289},
        "sku": "softmax/softmax_backward/backward/f32/sm_80/bespoke/f32.f32.dsb-/wide384x1x2r1/-/-/-",
        "cases": {"f32 10921x12289": [480.8, 506.528]},
        "device": "NVIDIA H200",
        "driver": "580.159.04",
        "nvrtc": "13.0",
        "digest": "625d7212dbca5d57",
    }
]
SMALL: tuple[Any, ...] = (
    *(None, True, -1, 1.5, float("nan"), 2**63, "", "x", "\n", [], {}, [[]], {"a": {}}, [1], [1, 2, 3]),
)


def places(data: Any, loc: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in nested mappings and lists."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*loc, key)
        yield from places(value, (*loc, key))


def put(data: Any, loc: tuple[Any, ...], value: Any) -> Any:
    """A copy of `data` with `value` there."""
    made = copy.deepcopy(data)
    at = made
    for step in loc[:-1]:
        at = at[step]
    at[loc[-1]] = copy.deepcopy(value)
    return made


def test_tables_of_measurements_are_refused_in_a_line_or_can_decide(tmp_path: Path) -> None:
    """Everything in its turn replaced by everything; and what is no JSON, or too deep, or too large."""
    path = tmp_path / "x.json"
    given = [json.dumps(put(ROWS, loc, value)) for loc in places(ROWS) for value in SMALL]
    given += ["[" * 100_000, "{", "\x00", "null", '{"a": 1}', "[" + "9" * 5000 + "]", "[" + "1," * 600_000 + "1]"]
    for text in given:
        path.write_text(text, encoding="utf-8")
        try:
            assert all(str(m) for m in read_table(path))
        except SpecError as error:
            assert re.match(r"\S+x\.json:\d+: holds no |\S+x\.json:1: the file is larger", str(error)), text[:200]
            assert "\n" not in str(error) and len(str(error)) < 800
    path.write_text(json.dumps([*ROWS, {**ROWS[0], "near": {"cols": "1"}}], indent=1), encoding="utf-8")
    with pytest.raises(SpecError, match=r"x\.json:22: holds no measurements \('cols' needs whole numbers of 64 bits"):
        read_table(path)
    (tmp_path / "tuned" / "@generated").mkdir(parents=True)
    (tmp_path / "tuned" / "@generated" / "x.json").write_text("[]", encoding="utf-8")
    with pytest.raises(SpecError, match="its folder is no architecture"):
        read_tables(tmp_path)


def test_a_damaged_table_beside_a_plan_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for text in ("[" * 100_000, "[]", '{"sm_90": 1}', '{"sm_90": [[]]}', '{"sm_90": [{}]}', "null"):
        (tmp_path / "beside" / "x.json").write_text(text, encoding="utf-8")
        with pytest.raises(InvalidProblem, match=r"beside/x\.json: .*; run 'baracuda-gen generate'"):
            _ = Tuned("beside", "x.json").by_arch
    assert rt.Measurement("f32", {}, {}, "sku", {"case": [1, 2]}).cases == {"case": (1.0, 2.0)}  # type: ignore[dict-item]


# Everything in every spec, in its turn, replaced by something else.

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 33, 2**31, 2**63, 0.5, float("nan"), "", [], {}, [[]], {"a": 1}, [None], [1] * 50, "x" * 5000),
    *("1 // 0", "(1.5,)", "((1,),)", "&a", "x x x ...", "(1 // 0,)", "1\n+ 1", "min(())", "(1)[0]"),
    *("is_suffix_mask(1)", "bucket()", "mask_axes(-1, 2)", "9223372036854775807 * 9223372036854775807", "(1,) * width"),
    *("lambda: 1", "None", "class", "T", "strided", "rest", '"""', "{{ 7 }}", "\\", "\u2028", "0 if 1 else 1//0", "-x"),
)
SOURCES = {path: read_yaml(path) for folder in (LONG, SPECS) for path in sorted(folder.rglob("*.yaml"))}


def mutants(count: int, paths: list[Path], seed: int) -> Iterator[YamlSource]:
    """Specs with one or two values, keys or items exchanged; each section of a file as often as the others."""
    rng = random.Random(seed)
    for _ in range(count):
        source = SOURCES[rng.choice(paths)]
        data = source.data
        for _ in range(rng.choice((1, 1, 1, 2))):
            section = rng.choice(list(data))
            loc = rng.choice([(section,), *(loc for loc in places(data) if loc[0] == section)])
            data = put(data, loc, rng.choice(HOSTILE))
        yield replace(source, data=data)


def listed(source: YamlSource) -> None:
    """Validate, lower, render and list a spec, as commands do."""
    loaded: Loaded = checked(source, "x.yaml")
    refuse_bad_cases([Subject(loaded, {}, "made")])
    (op,) = lower_all([loaded])
    files = texts([op])
    if loaded.spec.family == "body":
        planned_variants(op, loaded, files, "made", archs=("sm_90",), layouts=op.layout_names)


@pytest.mark.parametrize(("count", "family", "seed"), [(250, "body", 1), (250, "row", 2), (150, "map", 3)])
def test_mutated_specs_are_listed_or_refused_with_their_lines(count: int, family: str, seed: int) -> None:
    paths = [path for path in SOURCES if load_spec(path).spec.family == family]
    small = [path for path in paths if len(path.read_bytes()) < 10_000]  # the others take a second to list
    verdicts = {"listed": 0, "refused": 0}
    for source in mutants(count, small, seed):
        try:
            listed(source)
            verdicts["listed"] += 1
        except SpecError as error:
            assert all(re.match(r"\S+\.yaml:\d+: .", line) for line in str(error).splitlines()), str(error)
            assert len(str(error)) < 20_000
            verdicts["refused"] += 1
    assert min(verdicts.values()) > count // 40
