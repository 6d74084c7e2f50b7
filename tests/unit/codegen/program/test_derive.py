"""Derived gradients: each rule against differences, programs against automatic differentiation, specs that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repository import LONG, SPECS

from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.families.row.spec import RowSpec
from baracuda.codegen.program import Line, Scope, kind_of, parse, to_source
from baracuda.codegen.program.derive import derive
from baracuda.codegen.program.derived_lines import Forward
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.ops import OPS
from baracuda.codegen.program.slopes import RULES
from baracuda.codegen.program.space import Space
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.scope import kinds_of, scope_of
from baracuda.runtime import SpecError

LOADED = load_folder(SPECS)
ROWS, COLS = frozenset({"rows"}), frozenset({"cols"})
EXTENTS = {"rows": 3, "cols": 5}
WITHOUT_SLOPE = {"floor", "ceil", "round", "trunc", "stop_gradient", "isnan"}
REDUCED = ("sum", "mean", "max", "prod", "var")
DEFINED = {"asin": "x / 4", "acos": "x / 4", "atanh": "x / 4", "acosh": "x + 1"}  # where x from 1/4 to 2 is not


def _derived(program: str, wrt: dict[str, str], pull: frozenset[str] = COLS) -> tuple[Line, ...]:
    """Of `y`, from inputs x [rows, cols], g [cols] and s [rows]."""
    values = {"x": ROWS | COLS, "g": COLS, "s": ROWS}
    lines = parse(program, Scope(("rows", "cols"), values))
    kinds = dict.fromkeys(values, "float")
    for line in lines:
        kinds[line.name] = kind_of(line.expr, kinds)
    forward = Forward(lines, kinds, {**values, "dy": ROWS | COLS}, pull)
    return derive(forward, {"dy": "y"}, wrt, ())


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "x": rng.uniform(0.25, 2, (3, 5)), "g": rng.uniform(0.5, 2, (1, 5)), "s": rng.uniform(0.5, 2, (3, 1)),
        "dy": rng.normal(size=(3, 5)),
    }  # fmt: skip


def _by_differences(program: str, of: str, arrays: dict[str, Any]) -> Any:
    space, step = Space(EXTENTS), 1e-6
    lines = parse(program, Scope(("rows", "cols"), {"x": ROWS | COLS, "g": COLS, "s": ROWS}))

    def loss(value: Any) -> float:
        y = evaluate(lines, {**arrays, of: value}, space)["y"]
        return float(np.sum(y * arrays["dy"]))

    result = np.zeros_like(arrays[of])
    for place in np.ndindex(result.shape):
        away = np.zeros_like(result)
        away[place] = step
        result[place] = (loss(arrays[of] + away) - loss(arrays[of] - away)) / (2 * step)
    return result


def _check(program: str) -> None:
    arrays = _arrays()
    lines = _derived(program, {"dx": "x", "dg": "g", "ds": "s"})
    found = evaluate(lines, arrays, Space(EXTENTS))
    for name, of in (("dx", "x"), ("dg", "g"), ("ds", "s")):
        expected = _by_differences(program, of, arrays)
        np.testing.assert_allclose(np.broadcast_to(found[name], expected.shape), expected, 1e-6, 1e-7, err_msg=name)


OF_FLOATS = [name for name, row in OPS.items() if row.kind in ("float", "same") and row.takes != "complex"]


@pytest.mark.parametrize("op", OF_FLOATS)
def test_every_function_of_floats_has_a_slope_or_none(op: str) -> None:
    assert (op in RULES or op == "where") != (op in WITHOUT_SLOPE)


@pytest.mark.parametrize("op", [*RULES, "where"])
def test_slopes_are_those_of_the_function(op: str) -> None:
    operands = {1: DEFINED.get(op, "x"), 2: "x, g", 3: "x > 1, g, s" if op == "where" else "x, g, s"}[OPS[op].arity]
    symbol = OPS[op].symbol
    text = f"{op}({operands})" if not symbol else f"-{operands}" if op == "neg" else f"x {symbol} g"
    _check(f"y = s * ({text})")


@pytest.mark.parametrize(
    "program",
    [
        "r = sqrt(mean(x * x, cols) + 1e-3)\ny = x / r * g",
        "m = mean(x, cols)\nc = x - m\nr = 1 / sqrt(mean(c * c, cols) + 1e-3)\ny = c * r * g + s",
        "t = stop_gradient(max(x, cols))\ne = exp(x - t)\ny = x - t - log(sum(e, cols)) + t + e * 0.0",
        "e = exp(x)\ny = e / sum(e, cols) * s",
        "y = x * max(x, cols) - min(x * g, cols)",
        "a = x * g\nb = a * a\ny = a * b + sum(b, cols) * s",
        "y = x ** 3 / (1 + x * x) + where(x > 1.0, x * g, s)",
        "y = f32(x * g) + index(cols) * s - 2",
        "y = x ** g + x ** 1.5 - (s + 2) ** -2",
        "y = x * sum(x, [rows, cols]) + sum(x * g, (cols, rows))",
        *(f"y = x + {kind}(log(s) + {other}, cols)" for kind in REDUCED for other in ("x", "g", "x / s")),
        *(f"y = x + {kind}(log(s) + x + g, [rows, cols])" for kind in REDUCED),
        *(f"y = x + s * {kind}(s * g + where(x > 1.0, s, 0.5), cols)" for kind in REDUCED),
        "t = log(s) + x\ny = x * sum(t, cols) + mean(t * t, cols)",
        "t = log(s) * 2\ny = x + sum(t, cols) + mean(t + g, cols)",
    ],
)
def test_programs_are_differentiated(program: str) -> None:
    if "stop_gradient" in program:
        program = program.replace("stop_gradient", "")
    _check(program)


def test_a_sum_over_nothing_is_zero_beside_what_is_infinite_then() -> None:
    """A factor that leaves the sum may itself be of a sum, as a norm is, and without terms no number."""
    lines = _derived("y = s * x * rsqrt(sum(x * x, cols))", {"dx": "x", "ds": "s"})
    arrays = {"x": np.ones((3, 0)), "s": np.ones((3, 1)), "dy": np.ones((3, 0))}
    with np.errstate(divide="ignore", invalid="ignore"):
        found = evaluate(lines, arrays, Space({"rows": 3, "cols": 0}))
    assert found["dx"].shape == (3, 0) and not np.broadcast_to(found["ds"], (3, 1)).any()


def test_a_stopped_value_has_no_slope() -> None:
    (line,) = _derived("y = x * stop_gradient(x)", {"dx": "x"})
    assert to_source(line.expr) == "dy * stop_gradient(x)"


def _scope(spec: RowSpec | MapSpec) -> Scope:
    return scope_of(spec)


PROGRAMS = {name: entry.spec for name, entry in LOADED.items() if isinstance(entry.spec, RowSpec | MapSpec)}


def _is_placed(spec: RowSpec | MapSpec) -> bool:
    """Whether it is about extents that depend on each other, which the problems below are not."""
    assert spec.gradient
    return any(t.outside is not None for t in PROGRAMS[spec.gradient.of].inputs.values())


def _is_drawn(spec: RowSpec | MapSpec) -> bool:
    """Whether the problems below suit it: one program, of extents that do not depend on each other."""
    return bool(spec.gradient) and "" in spec.by_kind and not _is_placed(spec)


@pytest.mark.parametrize("op", [name for name, spec in PROGRAMS.items() if _is_drawn(spec)])
def test_gradients_of_the_folder_are_those_written_by_hand(op: str) -> None:
    spec = PROGRAMS[op]
    assert spec.gradient
    forward = PROGRAMS[spec.gradient.of]
    scope = _scope(forward)
    lines = parse(forward.program, scope)
    everywhere = frozenset(forward.dims)
    dims = {**scope.values, **{n: frozenset(forward.outputs[of].dims) for n, of in spec.gradient.cotangents.items()}}
    dims = {name: over if over <= everywhere else everywhere for name, over in dims.items()}  # of products, any
    pull = frozenset({"cols"} if isinstance(spec, RowSpec) else ())
    saved = [name for name in spec.gradient.saved if name in forward.outputs]
    made = derive(
        Forward(lines, kinds_of(forward, lines), dims, pull), spec.gradient.cotangents, spec.gradient.wrt, saved
    )
    rng, space = np.random.default_rng(2), Space(dict(zip(forward.dims, (2, 3, 4, 5), strict=False)))
    names = sorted({*forward.inputs, *dims})
    arrays: dict[str, Any] = {n: rng.normal(size=space.shape(dims.get(n, everywhere))) for n in names}
    whole = [n for n, tensor in forward.inputs.items() if forward.sort_of(tensor) == "int"]
    arrays |= {n: rng.integers(-1, 4, arrays[n].shape) for n in whole}
    arrays |= {n: f.default or 0.5 for n, f in forward.descriptor.items() if f.type == "float"}
    arrays |= {n: f.default or 0 for n, f in forward.descriptor.items() if f.type == "int"}
    values = evaluate(lines, arrays, space)
    given = {**arrays, **{name: values[name] for name in forward.outputs if name in spec.gradient.saved}}
    written = evaluate(parse(spec.program, _scope(spec)), given, space)
    found = evaluate(made, given, space)
    for name in spec.gradient.wrt:
        np.testing.assert_allclose(found[name] + 0 * written[name], written[name], 1e-9, 1e-12, err_msg=name)


def test_rows_are_read_in_as_few_passes_as_by_hand() -> None:
    rms = "r = sqrt(mean(x * x, cols) + 1e-3)\ny = x / r * g"
    layer = "m = mean(x, cols)\nc = x - m\nr = 1 / sqrt(mean(c * c, cols) + 1e-3)\ny = c * r * g"
    for program, sums in ((rms, 1), (layer, 2)):
        made = _derived(program, {"dx": "x"})
        assert sum("d_sum" in line.name for line in made) == sums


def _folder(tmp_path: Path, change: str, op: str = "rms_norm") -> Path:
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / f"{op}.yaml").write_text((LONG / f"{op}.yaml").read_text() + change)
    return folder


def test_a_gradient_follows_from_its_forward(tmp_path: Path) -> None:
    spec = load_folder(_folder(tmp_path, "backward: {gradient: {saved: [rms]}}\n"))["rms_norm_backward"].spec
    written = LOADED["rms_norm_backward"].spec
    assert spec.plan == written.plan and spec.dtypes == written.dtypes
    assert {r.that for r in spec.require} == {r.that for r in written.require}
    assert {n: t.model_dump(exclude={"doc"}) for n, t in spec.tensors.items()} == {
        n: t.model_dump(exclude={"doc"}) for n, t in written.tensors.items()
    }
    assert [*spec.descriptor] == [*written.descriptor]
    assert spec.reproducibility == written.reproducibility


def test_what_the_file_says_comes_first(tmp_path: Path) -> None:
    change = "backward: {op: d_rms, plan: DRmsPlan, gradient: {wrt: {dx: x}}, doc: Mine.}\n"
    spec = load_folder(_folder(tmp_path, change))["d_rms"].spec
    assert (spec.plan, spec.doc, [*spec.outputs]) == ("DRmsPlan", "Mine.", ["dx"])
    assert [*spec.inputs] == ["dy", "drms", "x", "gamma"]


@pytest.mark.parametrize(
    ("change", "op", "said"),
    [
        ("backward: 3\n", "rms_norm", "needs a mapping"),
        ("backward: {gradient: {wrt: {dx: z}}}\n", "rms_norm", "op 'rms_norm' has no 'z'"),
        ("backward: {gradient: [x]}\n", "rms_norm", "needs a mapping"),
        ("backward: {gradient: {of: softmax}}\n", "rms_norm", "is the gradient of 'rms_norm', whose file it is in"),
        ("backward: {op: rms_norm}\n", "rms_norm", "op 'rms_norm' is already in"),
        ("backward: {color: red}\n", "rms_norm", "color"),
    ],
)
def test_wrong_gradients_are_refused(tmp_path: Path, change: str, op: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_folder(_folder(tmp_path, change, op))
    assert said in str(caught.value) and "rms_norm.yaml:" in str(caught.value)


@pytest.mark.parametrize(
    "program",
    [
        "y = where(x > 1.0, x * log(x - 1.0), 0.0)",
        "p = x - 1.0\ny = where(p > 0, sqrt(p) * g, s) / where(p > 0, p, 1.0)",
        "e = where(x > 1.0, 1.0 / (x - 1.0), 0.0)\ny = e * g + e * s",
    ],
)
def test_the_side_not_taken_leaves_no_nan(program: str) -> None:
    """Where the slope of the other side is infinite or NaN, and the adjoint reaches it by several lines."""
    arrays = _arrays()
    arrays["x"][:, :3] = [0.5, 1.0, 0.25]
    lines = _derived(program, {"dx": "x"})
    with np.errstate(all="ignore"):
        found = np.broadcast_to(evaluate(lines, arrays, Space(EXTENTS))["dx"], (3, 5))
    assert np.isfinite(found).all() and (found[:, :3] == 0).all() and (found[:, 3:] != 0).any()
    shown = arrays["x"] > 1.01  # differences do not cross the condition
    with np.errstate(all="ignore"):
        differences = _by_differences(program, "x", arrays)
    np.testing.assert_allclose(found[shown], differences[shown], 1e-5, 1e-6)
