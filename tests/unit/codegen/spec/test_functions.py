"""Functions of programs: what a call is written out to, where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from baracuda.codegen.program import ProgramError, Scope, parse, parse_functions, to_source
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.space import Space
from baracuda.codegen.spec.functions import FILE, functions_of, shipped_functions
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import SpecError

TEXT = """
def twice(x):
    return x + x

def centred(x, *dims):
    "Around zero."
    away = x - mean(x, *dims)
    return away, sum(away * away, *dims)

def powers(x):
    for i in range(3):
        x = x * twice(x) + i
    return x
"""
SCOPE = Scope(
    ("rows", "cols"),
    {"x": frozenset({"rows", "cols"}), "g": frozenset({"cols"})},
    functions=parse_functions(TEXT, {}, FILE),
)


def _written_out(program: str) -> list[str]:
    return [f"{line.name} = {to_source(line.expr)}" for line in parse(program, SCOPE)]


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("y = twice(g)", ["y = g + g"]),
        ("y = twice(x * g)", ["twice_x = x * g", "y = twice_x + twice_x"]),
        ("y = twice(twice(x))", ["twice_x = x + x", "y = twice_x + twice_x"]),
        (
            "twice_x = g\ny = twice(x + 1) * twice_x",
            ["twice_x = g", "twice_x_2 = x + 1", "y = (twice_x_2 + twice_x_2) * twice_x"],
        ),
        (
            "a, b = centred(x, cols)",
            [
                "centred_away = x - mean(x, cols)",
                "a = centred_away",
                "b = sum(centred_away * centred_away, cols)",
            ],
        ),
        (
            "y = powers(g)",
            [
                "powers_x = g * (g + g) + 0",
                "powers_x_2 = powers_x * (powers_x + powers_x) + 1",
                "powers_x_3 = powers_x_2 * (powers_x_2 + powers_x_2) + 2",
                "y = powers_x_3",
            ],
        ),
    ],
)
def test_a_call_is_written_out(program: str, lines: list[str]) -> None:
    assert _written_out(program) == lines


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("y = twice(x, g)", "twice takes twice(x), got 2 operands"),
        ("y = centred(x)", "centred takes centred(x, *dims), got 1 operand"),
        ("y = centred(x, cols)", "centred gives 2 values; write `a, b = centred(...)`"),
        ("a, b, c = centred(x, cols)", "'centred(x, cols)' gives 2 values for 3 names"),
        ("y = twce(x)", "unknown function 'twce'; did you mean 'twice'?"),
        ("y = twice(z)", "unknown name 'z'; known are x, g"),
        ("a, a = centred(x, cols)", "'a' already means something; choose another name"),
    ],
)
def test_a_wrong_call_is_refused(program: str, message: str) -> None:
    with pytest.raises(ProgramError) as error:
        parse(program, SCOPE)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("def f(x): return f(x)", 1, "unknown function 'f'"),
        ("\nx = 1", 2, "expected `def name(a, b, *dims):`, got 'x = 1'"),
        ("def f(x=1): return x", 1, "expected `def name(a, b, *dims):`"),
        ("def f(x: int): return x", 1, "expected `def name(a, b, *dims):`"),
        ("@g\ndef f(x): return x", 2, "expected `def name(a, b, *dims):`"),
        ("def F(x): return x", 1, "'F' is not a name"),
        ("def exp(x): return x", 1, "'exp' is part of the language; choose another name"),
        ("def f(x):\n    y = z\n    return y", 2, "unknown name 'z'; known are x"),
        ("def f(x): return mean(x, cols)", 1, "a function takes its dims as *dims, got 'cols'"),
        ("def f(x):\n    while x: pass", 1, "the last line of 'f' must be `return value`"),
        ("def f(x):\n    return x\n    return x", 2, "expected `name = expression`, got 'return x'"),
        ("def f(x):\n    for i in range(99): x = x\n    return x", 2, "range takes a number from 0 to 64, got 99"),
        ("def f(x): return x\ndef f(x): return x", 2, "function 'f' is there already; rename one"),
        ("def f(x): return x.y", 1, "'x.y' is not allowed here"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ProgramError) as error:
        parse_functions(text, {}, FILE)
    assert message in str(error.value) and error.value.number == line


def test_what_functions_write_out_is_bounded() -> None:
    doubling = "def f0(x): return x + x\n"
    doubling += "".join(f"def f{i}(x):\n    return f{i - 1}(f{i - 1}(x))\n" for i in range(1, 30))
    with pytest.raises(ProgramError, match="more than 2000 operations"):
        parse_functions(doubling, {}, FILE)


def test_a_function_keeps_to_what_was_above_it() -> None:
    """A project's own definition changes no shipped one that calls a function of that name."""
    shipped = parse_functions("def a(x): return x + 1\ndef b(x): return a(x)", {}, FILE)
    own = {**shipped, **parse_functions("def a(x): return x + 2", shipped, FILE)}
    (line,) = parse("y = b(x) * a(x)", Scope(("rows",), {"x": frozenset()}, functions=own))
    assert to_source(line.expr) == "(x + 1) * (x + 2)"


def test_a_folder_adds_its_own(tmp_path: Path) -> None:
    assert functions_of(tmp_path) is shipped_functions()
    (tmp_path / FILE).write_text("def thrice(x): return 3 * x")
    assert {*functions_of(tmp_path)} == {*shipped_functions(), "thrice"}


def test_an_error_in_the_file_names_its_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("\ndef thrice(x): return 3 * y")
    with pytest.raises(SpecError, match=r"functions\.txt:2: unknown name 'y'; known are x"):
        load_folder(tmp_path)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "elsewhere.txt").write_text("def f(x): return x")
    (tmp_path / "specs" / FILE).symlink_to(tmp_path / "elsewhere.txt")
    with pytest.raises(SpecError, match="leads out of 'specs'"):
        functions_of(tmp_path / "specs")


def _drawn(function: str, count: int) -> np.ndarray[Any, Any]:
    """Values of a shipped function of random numbers, for elements 0, 1, ..."""
    scope = Scope(("x",), {"e": frozenset({"x"})}, functions=shipped_functions())
    lines = parse(f"y = {function}", scope)
    return np.asarray(evaluate(lines, {"e": np.arange(count)}, Space({"x": count}))["y"])


@pytest.mark.parametrize("seed", [0, 7, -1])
def test_normal_numbers_are_normal(seed: int) -> None:
    """Against the distribution (Kolmogorov and Smirnov), and elements that share a radius against each other."""
    drawn = _drawn(f"normal({seed}, 3, e)", 100_000)
    assert kstest(drawn, "norm").pvalue > 1e-3 and np.abs(drawn).max() > 4
    assert abs(np.corrcoef(drawn[::2], drawn[1::2])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[::2] ** 2, drawn[1::2] ** 2)[0, 1]) < 0.02


def test_a_bernoulli_number_is_true_as_often_as_asked() -> None:
    assert abs(np.mean(_drawn("where(bernoulli(0.3, 5, 1, e), 1.0, 0.0)", 100_000)) - 0.3) < 0.005
