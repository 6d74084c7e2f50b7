"""Reading at computed places: values against NumPy, bounds, gradients against differences, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baracuda.codegen.families.map.program import split
from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.families.row.program import row_lines
from baracuda.codegen.families.row.spec import RowSpec
from baracuda.codegen.program import Const, Line, Scope, kind_of, parse, to_source
from baracuda.codegen.program.bounds import Arithmetic, Bounded, bound
from baracuda.codegen.program.derive import derive
from baracuda.codegen.program.derived_lines import Forward
from baracuda.codegen.program.error import ProgramError
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.space import Space
from baracuda.codegen.program.tree import Axes, Read
from baracuda.codegen.spec.load import load_folder, load_spec
from baracuda.runtime import SpecError

EXTENTS = {"n": 2, "i": 6, "k": 3, "h": 5, "w": 4}
AXES = {
    "x": Axes(("n", "h"), Const(0.0)),
    "z": Axes(("h", "w"), Const(-1.0)),
    "g": Axes(("n", "i"), Const(0.0)),
    "ids": Axes(("n",)),
}
VALUES = {name: frozenset(axes.dims) for name, axes in AXES.items()} | dict.fromkeys(("pad", "two"), frozenset[str]())
KINDS = {"x": "float", "z": "float", "g": "float", "ids": "int", "pad": "int", "two": "int"}
SCOPE = Scope(tuple(EXTENTS), VALUES, axes=AXES)
PAD, TWO = 1, 2


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "x": rng.normal(size=(2, 1, 1, 5, 1)),
        "z": rng.normal(size=(1, 1, 1, 5, 4)),
        "g": rng.normal(size=(2, 6, 1, 1, 1)),
        "ids": np.array([3, -1]).reshape(2, 1, 1, 1, 1),
        "dy": rng.normal(size=(2, 6, 1, 1, 1)),
        "pad": PAD,
        "two": TWO,
    }


def _element(array: Any, *places: int, outside: float = 0.0) -> float:
    inside = all(0 <= p < n for p, n in zip(places, array.shape, strict=True))
    return float(array[places]) if inside else outside


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x[n, i - pad]", lambda x, z, n, i: _element(x[n], i - PAD)),
        ("x[n, size(h) - 1 - i]", lambda x, z, n, i: _element(x[n], 4 - i)),
        ("x[1 - n, (i + 3) % size(h)]", lambda x, z, n, i: _element(x[1 - n], (i + 3) % 5)),
        ("x[ids, i]", lambda x, z, n, i: _element(x, (3, -1)[n], i)),
        ("z[ids, i // two]", lambda x, z, n, i: _element(z, (3, -1)[n], i // 2, outside=-1.0)),
        ("z[i, i - 1]", lambda x, z, n, i: _element(z, i, i - 1, outside=-1.0)),
        ("z[4611686018427387904 * 4, 0]", lambda x, z, n, i: z[0, 0]),  # 2^64, in 64 bits
        ("sum(x[n, i * two + k - pad], k)", lambda x, z, n, i: sum(_element(x[n], 2 * i + k - PAD) for k in range(3))),
    ],
)
def test_a_read_is_that_element_or_what_lies_outside(text: str, expected: Any) -> None:
    arrays = _arrays()
    (line,) = parse(f"y = {text}", SCOPE)
    assert kind_of(line.expr, KINDS) == "float"
    found = np.broadcast_to(evaluate([line], arrays, Space(EXTENTS))["y"], (2, 6, 1, 1, 1))
    x, z = arrays["x"].reshape(2, 5), arrays["z"].reshape(5, 4)
    for n, i in np.ndindex(2, 6):
        assert found[n, i, 0, 0, 0] == pytest.approx(expected(x, z, n, i), rel=1e-15)


def test_it_is_printed_as_it_is_written() -> None:
    for text in ("x[n, i * two + k - pad]", "z[ids, (w + 2) % size(w)]", "z[x[n, 0] > 0, 1]"):
        (line,) = parse(f"y = {text}", SCOPE)
        assert to_source(line.expr) == text
        assert parse(f"y = {to_source(line.expr)}", SCOPE) == (line,)


def test_an_element_of_an_array_without_elements_lies_outside() -> None:
    arrays = {**_arrays(), "x": np.zeros((2, 1, 1, 0, 1))}
    found = evaluate(parse("y = x[n, i]", SCOPE), arrays, Space({**EXTENTS, "h": 0}))["y"]
    assert not np.any(found)


def test_a_read_has_the_error_of_what_it_reads_and_any_if_its_place_is_uncertain() -> None:
    arrays = {name: Bounded(value, 0.0) for name, value in _arrays().items()}
    arrays["x"] = Bounded(arrays["x"].value, np.arange(10.0).reshape(2, 1, 1, 5, 1))
    how = Arithmetic(2.0**-24, 0.0, lambda dims, count: count, {})
    error = bound(parse("y = x[n, i - pad]", SCOPE), arrays, Space(EXTENTS), how)["y"].error
    assert error.reshape(2, 6).tolist() == [[0, 0, 1, 2, 3, 4], [0, 5, 6, 7, 8, 9]]
    arrays["ids"] = Bounded(arrays["ids"].value, np.array([0, 1]).reshape(2, 1, 1, 1, 1))
    arrays["x"] = Bounded(arrays["x"].value, 0.0)
    lines = (Line("y", Read("z", ("h", "w"), (parse("p = ids", SCOPE)[0].expr, Const(0)), Const(-1.0))),)
    reader_errors = bound(lines, {**arrays}, Space(EXTENTS), how)["y"].error
    assert not np.any(reader_errors)  # an int of the caller is exact


def _gradient(text: str, of: str = "x") -> tuple[Line, ...]:
    lines = parse(f"y = {text}", SCOPE)
    dims = {**VALUES, "dy": frozenset(("n", "i"))}
    tensors = {name: axes.dims for name, axes in AXES.items()} | {"dy": ("n", "i")}
    return derive(Forward(lines, KINDS | {"y": "float"}, dims, tensors=tensors), {"dy": "y"}, {"dx": of}, ())


def _by_differences(text: str, of: str = "x") -> Any:
    arrays, space, lines = _arrays(), Space(EXTENTS), parse(f"y = {text}", SCOPE)

    def loss(value: Any) -> float:
        y = evaluate(lines, {**arrays, of: value}, space)["y"]
        return float(np.sum(np.broadcast_to(y, (2, 6, 1, 1, 1)) * arrays["dy"]))

    result = np.zeros_like(arrays[of])
    for place in np.ndindex(result.shape):
        away = np.zeros_like(result)
        away[place] = 1e-6
        result[place] = (loss(arrays[of] + away) - loss(arrays[of] - away)) / 2e-6
    return result


@pytest.mark.parametrize(
    ("text", "gradient"),
    [
        ("x[n, i - pad]", "dy[n, h + pad]"),
        ("2.0 * x[n, pad - i]", "2.0 * dy[n, pad - h]"),
        ("x[n, -i]", "dy[n, -h]"),
        ("x[1 - n, i]", "dy[1 - n, h]"),
        ("x[n, i ^ 1]", "dy[n, h ^ 1]"),
        ("x[n, i * two + 1]", None),
        ("x[n, i * 3 - two * 2]", None),
        ("x[n, (i + two) % size(i)]", "dy[n, (h - two) % size(i)]"),
        ("x[n, i - pad] * g", None),
        ("x[n, i - pad] * g[n, i + 1] + x[n, i]", None),
        ("exp(x[n, i - pad]) * x[n, i + 1]", None),
        ("sum(x[n, i * two + k - pad], k)", None),
        ("sum(x[n, i + k] * x[n, i], k)", None),
        ("x[n, i - pad] * index(i)", None),
        ("x[n, 0] * x[n, i]", None),
        ("x[n, two] * x[0, i]", None),
        ("x[n, abs(i - two)]", "dy[n, h + two] + where(0 < index(h), dy[n, -h + two], 0.0)"),
        ("x[n, size(h) - 1 - abs(size(h) - 1 - abs(i - pad))] * g", None),
        ("x[n, where(i < pad, i + size(h) - pad, i - pad)]", None),
        ("x[n, (i - two) % size(h)] * g", "sum(where((index(i) - two) % size(h) == index(h), dy * g, 0.0), i)"),
        ("x[n, minimum(maximum(i - pad, 0), size(h) - 1)]", None),
        ("exp(x[n, i // two]) * x[n, i - pad]", None),
        ("x[n, i % two]", None),
        ("x[n, (2 * i) % size(i)]", None),
        ("sum(x[n, i // two + k] * x[n, abs(k - i)], k)", None),
        ("x[n, (i + n) // two]", None),
    ],
)
def test_gradients_of_places_that_few_cells_read_are_reads(text: str, gradient: str | None) -> None:
    lines = _gradient(text)
    if gradient is not None:
        assert [f"{line.name} = {to_source(line.expr)}" for line in lines] == [f"dx = {gradient}"]
    found = evaluate(lines, _arrays(), Space(EXTENTS))["dx"]
    np.testing.assert_allclose(np.broadcast_to(found, (2, 1, 1, 5, 1)), _by_differences(text), 1e-6, 1e-8)


WINDOWS = "y = {extreme}(x[n, i * two + k - pad] * g, k)\nat = arg{extreme}(x[n, i * two + k - pad] * g, k)"


def _of_windows(extreme: str, saved: tuple[str, ...]) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    lines, over = parse(WINDOWS.format(extreme=extreme), SCOPE), frozenset(("n", "i"))
    dims = {**VALUES, "dy": over, "at": over}
    tensors = {name: axes.dims for name, axes in AXES.items()} | {"dy": ("n", "i"), "at": ("n", "i")}
    forward = Forward(lines, KINDS | {"y": "float", "at": "int"}, dims, tensors=tensors)
    return lines, derive(forward, {"dy": "y"}, {"dx": "x"}, saved)


@pytest.mark.parametrize("extreme", ["max", "min"])
def test_the_extreme_whose_place_is_saved_has_the_gradient(extreme: str) -> None:
    lines, gradient = _of_windows(extreme, ("at",))
    arrays = {**_arrays(), "x": np.array([1.0, 1, 0, 1, 1, 0, 0, 0, 0, 0]).reshape(2, 1, 1, 5, 1)}
    forward = evaluate(lines, arrays, Space(EXTENTS))
    expected = np.zeros((2, 5))
    for n, i in np.ndindex(2, 6):
        h = 2 * i + int(forward["at"][n, i, 0, 0, 0]) - PAD
        if 0 <= h < 5:
            expected[n, h] += arrays["dy"][n, i, 0, 0, 0] * arrays["g"][n, i, 0, 0, 0]
    found = evaluate(gradient, {**arrays, "at": forward["at"]}, Space(EXTENTS))["dx"]
    np.testing.assert_allclose(found.reshape(2, 5), expected, 1e-12)


def test_extremes_of_windows_need_a_place() -> None:
    with pytest.raises(ProgramError, match="needs to know which of its windows' extremes it is; save") as caught:
        _of_windows("max", ())
    assert "at = argmax(x[n, i * two + k - pad] * g, k)" in str(caught.value)


@pytest.mark.parametrize("text", ["z[i, i]", "z[i // two, i]", "z[i % two, abs(i - two)]", "z[abs(n - i), n] * g"])
def test_gradients_of_places_that_share_a_dim(text: str) -> None:
    found = evaluate(_gradient(text, "z"), _arrays(), Space(EXTENTS))["dx"]
    np.testing.assert_allclose(np.broadcast_to(found, (1, 1, 1, 5, 4)), _by_differences(text, "z"), 1e-6, 1e-8)


@pytest.mark.parametrize(
    ("text", "message"),
    [("x[ids, i]", "more than one cell may read an element by 'ids'"),
     ("x[ids + 1, i]", "more than one cell may read an element by 'ids + 1'"),
     ("x[n // 2, i]", "the cells that read vary along n, too, which is an axis of 'x'")],
)  # fmt: skip
def test_gradients_of_places_that_any_cell_may_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(ProgramError, match="has no gradient of its own") as caught:
        _gradient(text)
    assert message in str(caught.value)


SPEC = """
# All keys, so that each has a line.
op: probe
category: probes
direction: forward
plan: ProbePlan
family: map
doc: d
formula: f
source: s
descriptor: {n: {type: int, doc: d}, m: {type: int, doc: d}, pad: {type: int, doc: d}, fill: {type: float, doc: d}}
require: [{that: "min(n, m, pad) >= 0 and fill < 9.0", raises: InvalidProblem}]
dtypes: [f32]
dims: {r: {of: n}, i: {of: m + pad}, h: {of: m}}
inputs:
  x: {dims: [r, h], outside: 0, doc: d}
outputs:
  y: {dims: [r, i], doc: d}
program: y = x[r, i - pad]
reference: y = x[r, i - pad]
reproducibility: {y: []}
arch: {sm_80: {}}
tests: {cases: [{n: 3, m: 4, pad: 1, fill: 0.5}]}
"""


def _load(text: str, folder: Path) -> MapSpec:
    path = folder / "probe.yaml"
    path.write_text(text)
    spec = load_spec(path).spec
    assert isinstance(spec, MapSpec)
    return spec


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("y = x[r, i - pad]\nref", "y = x[r, ii - pad]\nref", "19: unknown name 'ii'; did you mean 'i'?"),
        ("y = x[r, i - pad]\nref", "y = x[r, i * 0.5]\nref",
         "19: 'x' is read at 'i * 0.5' along h, which is a float; a place is an int"),
        ("y = x[r, i - pad]\nref", "y = x[r, fill]\nref",
         "19: 'x' is read at 'fill' along h, which is a float; a place is an int"),
        ("y = x[r, i - pad]\nref", "y = x[i]\nref", "19: 'x' is read at 2 places (r, h), got 1"),
        ("outside: 0, ", "", "19: 'x' is read at computed places; say what lies outside, as in `outside: 0`"),
        ("y = x[r, i - pad]\nref", "y = (x + 1.0)[r, i]\nref",
         "19: 'x + 1.0' has no places; only an input of arrays is read at one: x"),
        ("y = x[r, i - pad]\nref", "y = fill[r]\nref",
         "19: 'fill' has no places; only an input of arrays is read at one: x"),
        ("y = x[r, i - pad]\nref", "y = x[r, 1:]\nref",
         "19: '1:' is no place; write one int for each axis, as in x[i + 1]"),
        ("y = x[r, i - pad]\nref", "y = x[r, index(i) > 0]\nref",
         "19: 'x' is read at 'i > 0' along h, which is a bool; a place is an int"),
        ("y = x[r, i - pad]\nref", "y = x\nref", "19: 'y' varies along h, which its dims do not list"),
        ("dims: [r, i]", "dims: [r, h]", "19: 'y' varies along i, which its dims do not list"),
        ("outside: 0", "outside: pad", "16: 'pad' is no float of the descriptor; known are fill"),
        ("dims: [r, h], outside: 0", "dims: [r, h], dtype: i32, outside: 0.5",
         "16: needs an int of 64 bits, as 'x' holds ints; got 0.5"),
        ("dims: [r, i], doc", "dims: [r, i], outside: 0, doc",
         "18: an output has no `outside`: only inputs are read at computed places"),
        ("{r: {of: n}, i: {of: m + pad}, h: {of: m}}", "{r: {of: n}, i: {of: m + pads}, h: {of: m}}",
         "14: unknown field 'pads'; did you mean 'pad'?"),
        ("{of: m + pad}", "{of: m + fill}", "14: must be of kind int, got 'm + fill' of kind float"),
        ("[r, i], doc", "[r, i], may_alias: [x], doc",
         "18: 'y' can share memory with an input of its own dims and dtype only"),
        ("{of: m + pad}, h: {of: m}", "{of: m}", "16: unknown dim 'h'; known are r, i"),
    ],
)  # fmt: skip
def test_wrong_reads_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert SPEC.count(old) == 1
    with pytest.raises(SpecError) as caught:
        _load(SPEC.replace(old, new), tmp_path)
    assert str(caught.value) == f"{tmp_path}/probe.yaml:{message}"


def test_memory_that_others_read_is_not_written(tmp_path: Path) -> None:
    square = SPEC.replace("h: {of: m}", "").replace("i: {of: m + pad}, ", "i: {of: m}").replace("[r, h]", "[r, i]")
    with pytest.raises(SpecError, match="'y' cannot share memory with 'x', whose elements are read at other places"):
        _load(square.replace("[r, i], doc", "[r, i], may_alias: [x], doc"), tmp_path)
    with pytest.raises(SpecError, match="'x' is never read at a computed place; drop `outside`"):
        _load(square.replace("[r, i - pad]", ""), tmp_path)


def test_dims_that_only_arrays_have_are_none_of_the_cells(tmp_path: Path) -> None:
    parts = split(_load(SPEC, tmp_path))
    assert parts.cells == ("r", "i") and parts.placed("x") == ("h",)
    both = split(_load(SPEC.replace("= x[r, i - pad]\nref", "= x[r, i - pad] + x[n - 1 - r, i]\nref"), tmp_path))
    assert both.placed("x") == ("r", "h") and len(both.reads) == 2


def test_a_gradient_follows_from_its_forward(tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(SPEC + "backward: {}\n")
    backward = load_folder(tmp_path)["probe_backward"].spec
    assert isinstance(backward, MapSpec) and backward.program == "dx = dy[r, h + pad]"
    assert backward.inputs["dy"].outside == 0 and "outside" not in backward.outputs["dx"].model_fields_set
    (tmp_path / "probe.yaml").write_text(SPEC.replace("[r, i - pad]", "[r // 2, i]") + "backward: {}\n")
    with pytest.raises(SpecError, match=r"probe.yaml:\d+: 'x\[r // 2, i\]' has no gradient of its own"):
        load_folder(tmp_path)


ROW = """
op: probe
doc: d
descriptor: {fill: {type: float, doc: d, default: 0.5}}
dims: {rows: rest, cols: axis}
inputs: {x: {outside: 0}, g: {dims: [cols], outside: fill}, at: {dims: [rows], dtype: i64}}
outputs: {y: {dims: [rows]}}
program: y = x[rows, at] + g[at]
reference: y = x[rows, at] + g[at]
"""


def _row(text: str, folder: Path) -> tuple[str, ...]:
    path = folder / "probe.yaml"
    path.write_text(text)
    spec = load_spec(path).spec
    assert isinstance(spec, RowSpec)
    return tuple(f"{line.name} = {to_source(line.expr)}" for line in row_lines(spec))


def test_an_element_of_a_row_is_a_sum_of_which_it_is_a_term(tmp_path: Path) -> None:
    inside = "0 <= at and at < size(cols)"
    of = {name: f"sum(where(index(cols) == at, {name}, 0.0), cols)" for name in "xg"}
    assert _row(ROW, tmp_path) == (f"y = {of['x']} + where({inside}, {of['g']}, fill)",)
    assert _row(ROW.replace("y = x[rows, at] +", "y = sum(x[rows, cols], cols) * x[rows, 0] +"), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("program: y = x[rows, at]", "program: y = sum(x[rows, cols - 1], cols)",
      "8: 'x[rows, cols - 1]' is not one element of each row; the map family reads at any place"),
     ("program: y = x[rows, at]", "program: y = x[rows + 1, at]",
      "8: 'x[rows + 1, at]' is not one element of each row; the map family reads at any place"),
     ("program: y = x[rows, at] + g[at]", "program: y = sum(x, cols) + g[at]",
      "6: 'x' is never read at a computed place; drop `outside`")],
)  # fmt: skip
def test_other_elements_are_not_for_rows(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        _row(ROW.replace(old, new), tmp_path)
    assert str(caught.value) == f"{tmp_path}/probe.yaml:{message}"
