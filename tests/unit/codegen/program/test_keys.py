"""Gradients of what arrays of ints name: of tables, gathers and sums by an index, against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda.codegen.program import Const, Line, Scope, kind_of, parse, to_source
from baracuda.codegen.program.derive import derive
from baracuda.codegen.program.derived_lines import Forward
from baracuda.codegen.program.error import ProgramError
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.space import Space
from baracuda.codegen.program.tree import Axes

EXTENTS = {"n": 3, "i": 6, "row": 4, "d": 2}
AXES = {
    "x": Axes(("row", "d"), Const(0.0)),
    "z": Axes(("n", "row"), Const(0.0)),
    "g": Axes(("n", "i", "d"), Const(0.0)),
    "ids": Axes(("n", "i")),
    "at": Axes(("row",)),
    "label": Axes(("n",)),
}
SHAPES = {"x": (1, 1, 4, 2), "z": (3, 1, 4, 1), "g": (3, 6, 1, 2)}
VALUES = {name: frozenset(axes.dims) for name, axes in AXES.items()}
KINDS = {"x": "float", "z": "float", "g": "float", "ids": "int", "at": "int", "label": "int"}
SCOPE = Scope(tuple(EXTENTS), VALUES, axes=AXES)


def _arrays(over: tuple[str, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    floats = {name: rng.uniform(0.5, 2, shape) for name, shape in SHAPES.items()}
    ints = {
        "ids": rng.integers(-1, 5, (3, 6, 1, 1)), "at": np.array([2, 0, 9, 2]).reshape(1, 1, 4, 1),
        "label": np.array([1, -1, 3]).reshape(3, 1, 1, 1),
    }  # fmt: skip
    shape = [EXTENTS[dim] if dim in over else 1 for dim in EXTENTS]
    return {**floats, **ints, "dy": rng.normal(size=shape)}


def _gradient(text: str, over: tuple[str, ...], of: str) -> tuple[Line, ...]:
    lines = parse(f"y = {text}", SCOPE)
    tensors = {name: axes.dims for name, axes in AXES.items()} | {"dy": over}
    kinds = {**KINDS, "y": kind_of(lines[0].expr, KINDS)}
    forward = Forward(lines, kinds, {**VALUES, "dy": frozenset(over)}, tensors=tensors)
    return derive(forward, {"dy": "y"}, {"dx": of}, ())


def _by_differences(text: str, over: tuple[str, ...], of: str) -> Any:
    arrays, space, lines = _arrays(over), Space(EXTENTS), parse(f"y = {text}", SCOPE)

    def loss(value: Any) -> float:
        y = evaluate(lines, {**arrays, of: value}, space)["y"]
        return float(np.sum(np.broadcast_to(y, arrays["dy"].shape) * arrays["dy"]))

    result = np.zeros_like(arrays[of])
    for place in np.ndindex(result.shape):
        away = np.zeros_like(result)
        away[place] = 1e-6
        result[place] = (loss(arrays[of] + away) - loss(arrays[of] - away)) / 2e-6
    return result


@pytest.mark.parametrize(
    ("text", "over", "of", "gradient"),
    [
        ("x[ids, d]", "n i d", "x", "sum(where(ids == index(row), dy, 0.0), i, n)"),
        ("x[ids, d] * g", "n i d", "x", "sum(where(ids == index(row), dy * g, 0.0), i, n)"),
        ("where(g > 1.0, x[ids, d], 0.0)", "n i d", "x", "sum(where(g > 1.0 and ids == index(row), dy, 0.0), i, n)"),
        ("z[n, ids]", "n i", "z", "sum(where(ids == index(row), dy, 0.0), i)"),
        ("z[n, label]", "n", "z", "where(label == index(row), dy, 0.0)"),
        ("z[n, label] * g", "n i d", "z", None),
        ("x[ids, 1]", "n i", "x", "sum(where(index(d) == 1 and ids == index(row), dy, 0.0), i, n)"),
        ("x[ids, d] * x[ids, d] + x[label, d]", "n i d", "x", None),
        ("sum(x[ids, d], i)", "n d", "x", None),
        ("sum(where(ids == index(row), g, 0.0), n, i)", "row d", "g", "dy[ids, d]"),
        ("sum(where(ids == index(row), g * g, 0.0), i)", "n row d", "g", None),
        ("sum(where(ids == index(row) and g > 1.0, g, 0.0), n, i) * x", "row d", "g", None),
        ("sum(where(ids == index(row), g, 0.0), n, i) * x", "row d", "x", None),
        ("sum(where(label == index(row), z, 0.0), row)", "n", "z", "where(label == index(row), dy, 0.0)"),
    ],
)
def test_gradients_of_what_keys_name(text: str, over: str, of: str, gradient: str | None) -> None:
    dims = tuple(over.split())
    lines = _gradient(text, dims, of)
    if gradient is not None:
        assert [f"{line.name} = {to_source(line.expr)}" for line in lines] == [f"dx = {gradient}"]
    found = evaluate(lines, _arrays(dims), Space(EXTENTS))["dx"]
    np.testing.assert_allclose(np.broadcast_to(found, SHAPES[of]), _by_differences(text, dims, of), 1e-6, 1e-8)


@pytest.mark.parametrize(
    ("text", "over", "place"),
    [("x[at, d]", "row d", "at"), ("x[ids + 1, d]", "n i d", "ids + 1"), ("x[ids, label]", "n i", "ids"),
     ("x[ids, i // 2]", "n i", "ids")],
)  # fmt: skip
def test_places_by_more_than_an_array_of_ints_are_refused(text: str, over: str, place: str) -> None:
    with pytest.raises(ProgramError, match="more than one cell may read an element") as caught:
        _gradient(text, tuple(over.split()), "x")
    assert repr(place) in str(caught.value)
    assert "an array of ints" in str(caught.value)
