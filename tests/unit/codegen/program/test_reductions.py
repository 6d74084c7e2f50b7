"""Reductions of programs: what kind they give, what NumPy makes of them, and when their results are certain."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda.codegen.program import ProgramError, Scope, kind_of, parse
from baracuda.codegen.program.bounds import Arithmetic, Bounded, bound
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.space import Space

SCOPE = Scope(("row", "col"), {"x": frozenset({"row", "col"}), "i": frozenset({"row", "col"})})
F32 = Arithmetic(2.0**-24, 2.0**-149, lambda dims, count: float(count), {})


def space(rows: int, cols: int) -> Space:
    return Space({"row": rows, "col": cols})


def value(text: str, x: object, rows: int = 2, cols: int = 3) -> list[object]:
    array = np.array(x).reshape(rows, cols)
    return list(np.ravel(evaluate(parse(f"y = {text}", SCOPE), {"x": array, "i": array}, space(rows, cols))["y"]))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("sum(x, col)", "float"),
        ("sum(i, col)", "int"),
        ("mean(i, col)", "float"),
        ("max(i, col)", "int"),
        ("any(x > 0, col)", "bool"),
        ("argmax(x, col)", "int"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    (line,) = parse(f"y = {text}", SCOPE)
    assert kind_of(line.expr, {"x": "float", "i": "int"}) == kind


def test_a_float_becomes_the_int_towards_zero_or_the_nearest_there_is() -> None:
    most = np.iinfo(np.int64)
    assert value("i64(x)", [-2.7, 2.7, np.nan, np.inf, -np.inf, 1e19]) == [-2, 2, 0, most.max, most.min, most.max]
    assert value("i64(i)", [most.max, most.min, 0, 1, 2, 3])[:2] == [most.max, most.min]
    (line,) = parse("y = i64(x)", SCOPE)
    assert kind_of(line.expr, {"x": "float"}) == "int"
    x = np.array([[0.2, 0.9, 1.5]])
    found = bound((line,), {"x": Bounded(x, np.full_like(x, 0.15))}, space(1, 3), F32)["y"]
    assert np.ravel(found.error).tolist() == [0, 1, 0]  # 0.9 may be 1.05


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all(x, col)", "all takes a bool, got float; compare, as in all(x > 0, dim)"),
        ("prod(x > 0, col)", "prod takes numbers, got a bool"),
        ("argmin(x == 0, col)", "argmin takes numbers, got a bool"),
    ],
)
def test_wrong_kinds(text: str, said: str) -> None:
    (line,) = parse(f"y = {text}", SCOPE)
    with pytest.raises(ProgramError, match=said.replace("(", r"\(").replace(")", r"\)")):
        kind_of(line.expr, {"x": "float", "i": "int"})


def test_the_first_of_equal_extremes_and_nan_first_of_all() -> None:
    x = [[1.0, 3.0, 3.0], [np.nan, 5.0, np.nan]]
    assert value("argmax(x, col)", x) == [1, 0]
    assert value("argmin(x, row)", x) == [1, 0, 1]
    assert value("argmax(x, col, row)", [[1, 9, 2], [0, 9, 9]]) == [2]  # rows vary fastest
    assert value("argmax(x, col)", [], 2, 0) == [-1, -1]


def test_whole_numbers_are_exact_and_wrap() -> None:
    assert value("sum(i, col)", [[2**53, 1, 1], [2**63 - 1, 1, 0]]) == [2**53 + 2, -(2**63)]
    assert value("prod(i, col)", [[3, 5, 7], [2, 2, -2]]) == [105, -8]
    assert value("max(i, col)", np.zeros(0, np.int64), 1, 0) == [-(2**63)]


def test_truth_values() -> None:
    assert value("any(x > 2, col)", [[1, 2, 3], [0, 0, 0]]) == [True, False]
    assert value("all(x > 0, row)", [[1, 2, 3], [0, 1, 1]]) == [False, True, True]


def errors(text: str, x: object, error: object) -> list[float]:
    inputs = {"x": Bounded(np.array(x, np.float64), np.array(error, np.float64))}
    return list(np.ravel(bound(parse(f"y = {text}", SCOPE), inputs, space(1, 3), F32)["y"].error))


def test_a_place_is_certain_unless_a_rival_may_be_as_extreme() -> None:
    assert errors("argmax(x, col)", [[1.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]) == [0]
    assert errors("argmax(x, col)", [[1.0, 0.9, 0.0]], [[0.06, 0.06, 0.06]]) == [np.inf]
    assert errors("argmax(x, col)", [[1.0, 0.9, 0.0]], [[0.04, 0.04, 0.04]]) == [0]
    assert errors("any(x > 1, col)", [[1.0, 0.0, 0.0]], [[0.1, 0.0, 0.0]]) == [1]
    assert errors("any(x > 1, col)", [[1.0, 2.0, 0.0]], [[0.1, 0.0, 0.0]]) == [0]


def test_a_sum_of_products_is_off_by_what_its_factors_lose() -> None:
    """Also where they are split, and where one in any doubt is multiplied by 0."""
    scope = Scope(("row", "depth", "col"), {"x": frozenset({"row", "depth"}), "z": frozenset({"depth", "col"})})
    line, of = parse("y = sum(x * z, depth)", scope), Space({"row": 2, "depth": 2, "col": 2})
    x, z = np.full((2, 2, 1), 4.0), np.array([[[0.0, 8.0], [2.0, 8.0]]])
    doubt = np.zeros_like(x)
    for split, lost in ((0.0, 0.0), (2.0**-10, 2.0**-10 * (4 + 4 + 8 + 8))):
        how = Arithmetic(2.0**-24, 2.0**-149, lambda dims, count: 0.0, {}, split)
        error = bound(line, {"x": Bounded(x, doubt), "z": Bounded(z, 0.0 * z)}, of, how)["y"].error
        np.testing.assert_allclose(error[..., 1], lost, rtol=1e-3, atol=1e-40)
    doubt[0, 0] = np.inf
    error = bound(line, {"x": Bounded(x, doubt), "z": Bounded(z, 0.0 * z)}, of, F32)["y"].error
    assert np.isinf(error[0]).all() and np.isfinite(error[1]).all()


def test_a_product_is_off_by_a_rounding_of_each_factor() -> None:
    (error,) = errors("prod(x, col)", [[3.0, 5.0, 7.0]], [[0.0, 0.0, 0.0]])
    assert 3 * 2.0**-24 * 105 <= error <= 3.1 * 2.0**-24 * 105


@pytest.mark.parametrize("condition", ["index(k) % 3 == index(t)", "(index(i) + index(k)) % 3 == index(t)"])
def test_sums_of_chosen_products_round_as_often_as_products_are_chosen(condition: str) -> None:
    extents = {"n": 2, "i": 4, "k": 8, "t": 3}
    lines = parse(
        f"y = sum(where({condition}, w * g, 0.0), i, k)",
        Scope(tuple(extents), {"w": frozenset("nk"), "g": frozenset("ni")}),
    )
    arrays = {"w": Bounded(np.ones((2, 1, 8, 1)), 0.0), "g": Bounded(np.ones((2, 4, 1, 1)), 0.0)}
    found = bound(lines, arrays, Space(extents), F32)["y"]
    count = np.max(found.value)  # of ones
    assert count >= 11 and np.max(found.error) == pytest.approx(count * 2.0**-24 * count, rel=1e-3)
