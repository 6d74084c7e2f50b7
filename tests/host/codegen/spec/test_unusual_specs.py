"""Specs that are right and unusual: what they make imports, selects, and can be called or says why not."""

from __future__ import annotations

import inspect
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host.own_package import package
from repository import LONG

import baracuda.ops as ops
from baracuda.checking.oracles.oracle import with_saved
from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.codegen.emit.generate import generate
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import REGISTRY, InvalidProblem, SpecError
from baracuda.runtime.devices.named import get_device

BODY = (LONG / "causal_conv1d_update.yaml").read_text()
MAP = """
op: probe
category: probes
direction: forward
plan: ProbePlan
family: map
doc: d
formula: f
source: s
descriptor:
  n: {type: int, doc: rows}
  m: {type: int, doc: columns}
require:
  - {that: n >= 0 and m >= 0, raises: InvalidProblem}
dtypes: [f32]
dims: {i: {of: n}, j: {of: m}}
inputs:
  x: {dims: [i, j], doc: what is read}
outputs:
  y: {dims: [i, j], doc: the result}
program: y = x * 2.0
reference: y = x * 2.0
reproducibility: {y: []}
arch: {sm_80: {}}
tests: {cases: [{n: 3, m: 4}]}
"""


def test_a_category_does_not_hide_what_the_package_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path, MAP.replace("category: probes", "category: import_module"), monkeypatch)
    made.import_all()
    assert made.ProbePlan.OP == "probe" and made.ProbeDescriptor(n=1, m=2, element="f32").n == 1


def test_everything_can_be_imported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path, MAP, monkeypatch)
    found: dict[str, Any] = {}
    exec(f"from {made.__name__} import *", found)
    assert found.keys() - {"__builtins__"} == {"ProbePlan", "ProbeDescriptor", "MODULES", "import_all"}
    assert found["ProbePlan"] is made.ProbePlan


def test_the_runtime_is_no_field(tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(MAP.replace("  m: {", "  rt: {type: int, doc: d, default: 3}\n  m: {"))
    with pytest.raises(SpecError, match="'rt' is a reserved word"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("terms:\n", "terms:\n  area: prod((channels, width))\n"),
        ("when: seq_len > 0", "when: 'prod((channels, 1)) > 0'"),
        ("threads: 128}", "threads: 128, fits: isfinite(channels)}"),
        ("(batch_size, channels, seq_len)", "(batch_size, prod((channels, 1)), seq_len)"),
    ],
)
def test_every_expression_may_call_every_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    assert old in BODY
    made = package(tmp_path, BODY.replace(old, new, 1), monkeypatch)
    sizes = {"batch_size": 2, "channels": 8, "seq_len": 3, "width": 2, "state_len": 4, "use_silu": False}
    known = {name: value for name, value in sizes.items() if name in made.CausalConv1dUpdateDescriptor._types}
    made.CausalConv1dUpdatePlan.select(made.CausalConv1dUpdateDescriptor(**known, element="f32"))


def test_a_gradient_may_save_what_its_forward_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backward = MAP.replace("op: probe", "op: probe_backward").replace("ProbePlan", "ProbeBackwardPlan")
    backward = backward.replace("direction: forward", "direction: backward").replace("  y: {", "  dx: {")
    backward = backward.replace("inputs:\n", "inputs:\n  dy: {dims: [i, j], doc: gradient}\n")
    backward = backward.replace("{y: []}", "{dx: []}")
    backward = backward.replace("program: y = x * 2.0\nreference: y = x * 2.0\n", "program: dx = dy * (x + x)\n"
                                "gradient: {of: probe, cotangents: {dy: y}, wrt: {dx: x}, saved: [x]}\n")  # fmt: skip
    (tmp_path / "a.yaml").write_text(MAP.replace("x * 2.0", "x * x"))
    (tmp_path / "b.yaml").write_text(backward)
    loaded = load_folder(tmp_path)
    generate(tmp_path, tmp_path / "saves_inputs")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(REGISTRY, "_table", type(REGISTRY._table)())
    problem = Problem.of(Subject(loaded["probe_backward"], loaded, "saves_inputs"), {"n": 2, "m": 3}, "f32")
    arrays, expected = with_saved(problem, problem.draw(), problem.stored_types())
    assert np.allclose(expected["dx"], 2.0 * arrays["x"] * arrays["dy"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  m: {", "  scale: {type: float, doc: d}\n  m: {", "takes scale as well; pass scale="),
        ("  m: {", "  softmax_axis: {type: int, doc: d}\n  m: {", "takes softmax_axis as well"),
        ("  m: {", "  eps: {type: int, doc: d}\n  m: {", "takes eps as well"),
        ("doc: what", "dtype: [T, acc], doc: what", "probe takes element as well; pass element=, one of f32, f16; no"),
        ("inputs:\n  x: {dims: [i, j], doc: what is read}\n", "inputs: {}\n", "takes element as well; pass element="),
    ],
)
def test_functions_say_what_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    fields = {"scale": "1.0", "softmax_axis": "1", "eps": "1"}
    read = "".join(f" and {name} > 0" for name in fields if f"{name}:" in new)
    sizes = {"n": 2, "m": 3} if "inputs: {}" in new else {}
    case = ", ".join(["n: 3", "m: 4", *(f"{name}: {value}" for name, value in fields.items() if f"{name}:" in new)])
    text = MAP.replace(old, new, 1).replace("{n: 3, m: 4}", f"{{{case}}}").replace("[f32]", "[f32, f16]")
    text = text.replace("m >= 0", f"m >= 0{read}")
    text = text.replace("y = x * 2.0", "y = index(i) * 1.0") if "inputs: {}" in text else text
    call = ops.functions(package(tmp_path, text, monkeypatch))["probe"]
    with pytest.raises(InvalidProblem, match=said):
        call(*([] if sizes else [np.ones((2, 3), np.float32)]), **sizes)


ARANGE = MAP.replace("inputs:\n  x: {dims: [i, j], doc: what is read}\n", "inputs: {}\n").replace(
    "y = x * 2.0", "y = 1.0 * index(i) * size(j) + index(j)"
)
SCALED = MAP.replace("doc: what", "optional: has_x, default: 3.0, doc: what").replace(
    "  m: {", "  has_x: {type: bool, doc: whether there is x}\n  m: {"
)
SCALED = SCALED.replace("{n: 3, m: 4}", "{n: 3, m: 4, has_x: true}, {n: 3, m: 4, has_x: false}")


@pytest.mark.parametrize("given", ["element", "y", "neither"])
def test_functions_without_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    text = ARANGE if given == "neither" else ARANGE.replace("[f32]", "[f32, f16]")
    call = ops.functions(package(tmp_path, text, monkeypatch))["probe"]
    keywords = {"n": 2, "m": 3} | ({} if given == "neither" else {"element": np.dtype("float16")})
    array = np.empty((2, 3), np.float32 if given == "neither" else np.float16)
    monkeypatch.setattr("baracuda.ops.function.default_device", lambda: get_device("host"))
    y = call(**keywords, **({"y": array} if given == "y" else {}))
    assert (y is array) == (given == "y") and y.dtype == array.dtype and np.array_equal(y, np.arange(6).reshape(2, 3))


def test_functions_whose_inputs_are_all_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path, SCALED.replace("[f32]", "[f32, f16]"), monkeypatch)
    call = ops.functions(made)["probe"]
    monkeypatch.setattr("baracuda.ops.function.default_device", lambda: get_device("host"))
    assert str(inspect.signature(call)) == "(x=None, *, n=None, m=None, element=None, y=None, stream=None)"
    stub = (Path(made.__file__).parent / "_functions.pyi").read_text().replace("\n", " ")
    assert all(f", {line} | None = None, " in stub for line in ("n: int", "m: int", "element: DTypeLike"))
    assert np.array_equal(call(np.full((2, 3), 5, np.float16)), np.full((2, 3), 10, np.float16))
    assert np.array_equal(call(n=1, m=2, element="f32"), np.full((1, 2), 6, np.float32))
    with pytest.raises(InvalidProblem, match="probe takes n, m as well; pass n="):
        call(element="f32")


def test_functions_whose_input_may_have_several_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = MAP.replace("doc: what", "dtype: [T, acc], doc: what").replace("[f32]", "[f32, f16]")
    call = ops.functions(package(tmp_path, text, monkeypatch))["probe"]
    assert call(np.ones((2, 3), np.float32), element="f16").dtype == np.float16
    with pytest.raises(InvalidProblem, match="probe takes x; got no array"):
        call(element="f16")


@pytest.mark.parametrize("name", ["a.yaml", "tuned/sm_90/a.json"])
def test_a_link_to_itself_is_refused_in_a_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(path.name, path)
    with pytest.raises(SpecError, match="is a link that leads out of") as refused:
        load_folder(tmp_path)
    assert "\n" not in str(refused.value)


def test_selection_of_any_spec_ends_in_a_second(tmp_path: Path) -> None:
    """Whatever budgets let pass: long products, for every schedule or for every case."""
    product = " + ".join(["prod(s)"] * 24)
    many = "".join(f"  - {{that: {product} >= -{at}, raises: Unsupported}}\n" for at in range(18))
    text = MAP.replace("  m: {", "  s: {type: shape, doc: d}\n  m: {").replace("dtypes:", f"{many}dtypes:")
    cases = ", ".join("{n: 3, m: 4, s: [9223372036854775807]}" for _ in range(30))
    text = text.replace("[{n: 3, m: 4}]", f"[{cases}]")
    (tmp_path / "probe.yaml").write_text(text)
    began = time.process_time()
    with pytest.raises(SpecError, match=r"evaluates \d+ characters of conditions"):
        load_folder(tmp_path)
    (tmp_path / "probe.yaml").write_text(MAP.replace("n >= 0 and m >= 0", "'prod((n,) * 192) > 0'"))
    with pytest.raises(SpecError, match="an int may need 12288 bits, the most is 8320"):
        load_folder(tmp_path)
    assert time.process_time() - began < 2


def test_a_header_of_a_name_that_no_file_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "op.yaml").write_text(BODY.replace("convolution/causal_conv1d_update.cuh", "f" * 300 + ".cuh"))
    with pytest.raises(SpecError, match="needs a length <= 64"):
        load_folder(tmp_path)


def test_errors_in_files_that_an_op_does_not_need_leave_it_alone(tmp_path: Path) -> None:
    """The op that is asked for and its forward op are read; without ops every error counts."""
    for name in ("softmax", "softmax_backward", "repeat"):
        (tmp_path / f"{name}.yaml").write_text((LONG / f"{name}.yaml").read_text())
    (tmp_path / "broken.yaml").write_text("op: broken\n")
    (tmp_path / "tuned" / "sm_80").mkdir(parents=True)
    (tmp_path / "tuned" / "sm_80" / "broken.json").write_text("[]")
    assert [*load_folder(tmp_path, ["softmax_backward"])] == ["softmax", "softmax_backward"]
    for named in ((), ("broken",), ("repeat", "nothing")):
        with pytest.raises(SpecError, match=r"broken.yaml:1: 'doc' is missing; add it"):
            load_folder(tmp_path, named)
    (tmp_path / "softmax.yaml").unlink()
    with pytest.raises(SpecError, match=r"broken.yaml:1: 'doc' is missing"):
        load_folder(tmp_path, ["softmax_backward"])


PICKED = """
op: picked
doc: The share of each row's sum that one column has.
descriptor: {axis: {type: int, default: -1}}
dims: {rows: rest, cols: axis}
inputs: {x: numbers, at: {dims: [rows], dtype: i64, doc: a column}}
outputs: [y]
program: y = where(index(cols) == at, x, 0.0) / sum(x, cols)
"""


def test_a_place_beyond_32_bits_is_no_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picked = ops.functions(package(tmp_path, PICKED, monkeypatch))["picked"]
    x, at = np.ones((4, 2), np.float32), np.array([[1], [2**32 + 1], [-(2**32)], [-1]])
    assert picked(x, at).tolist() == [[0.0, 0.5], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("place", ["1.0", "1.5 - 0.5", "size(cols) / 2", "size(cols) // 2"])
def test_a_column_may_be_compared_with_any_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    text = PICKED.replace("== at", f"== {place}").replace(", at: {dims: [rows], dtype: i64, doc: a column}", "")
    picked = ops.functions(package(tmp_path, text, monkeypatch))["picked"]
    assert picked(np.ones((1, 2), np.float32)).tolist() == [[0.0, 0.5]]
