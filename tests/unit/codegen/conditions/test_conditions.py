"""Conditions have kinds and budgets: what is accepted computes little, wherever it runs and whatever it is given."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from baracuda.codegen.conditions.kinds import BOOL, FLOAT, MAX_BITS, MAX_LENGTH, SHAPE, WORD, Kind, kind_of
from baracuda.codegen.conditions.parse import ConditionError, evaluate_condition, on_one_line, read_condition
from baracuda.runtime.arrays import axes
from baracuda.runtime.errors import InvalidProblem
from baracuda.runtime.plans.formula import bucket, ceil_div, evaluate, round_up
from baracuda.runtime.values import MAX_RANK

NAMES = {"n": WORD, "m": WORD, "x": FLOAT, "flag": BOOL, "shape": SHAPE, "other": SHAPE}
LARGEST = {"n": 2**63 - 1, "m": -(2**63), "x": 1e308, "flag": True}
WIDE = {"shape": (2**63 - 1,) * MAX_RANK, "other": (-(2**63),) * MAX_RANK}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prod((9223372036854775807,) * 3000000)", "a tuple may have 3000000 elements"),
        ("len((0,) * 400000000)", "a tuple may have 400000000 elements"),
        ("len(shape * n)", "elements, the most is"),
        ("len(n * shape)", "elements, the most is"),
        ("len((n,) * (n * m))", "elements, the most is"),
        ("prod(shape * 4)", "an int may need 16384 bits"),
        (" * ".join(["(" + " * ".join(["n"] * 80) + ")"] * 3), "an int may need 10081 bits"),
        ("len(mask_axes(" + " * ".join(["n"] * 40) + ", 4))", "a tuple may have 2521 elements"),
        (" + ".join(["shape"] * 40) + " == shape", "a tuple may have 1088 elements"),
        (", ".join(["(" + ", ".join(["prod(shape + shape)"] * 60) + ")[0]"] * 2), "operations; shorten it"),
        ("2 ** n", "'2 ** n' is not allowed here; multiply, or make the power a field"),
        ("n // 0", "divides by zero"),
        ("n % (1 - 1)", "divides by zero"),
        ("x // False", "divides by zero"),
        ("ceil_div(n, 0)", "divides by zero"),
        ("round_up(n, 0)", "divides by zero"),
        ("min(())", "an empty tuple has no least"),
        ("(n, m)[2]", "index 2 is outside a tuple of 2"),
        ("(n, m)[-3]", "index 3 is outside a tuple of 2"),
        (f"shape[{MAX_RANK}]", f"index {MAX_RANK} is outside a tuple of {MAX_RANK}"),
        ("((n, m), n)", "an element of a tuple must be an int, got '(n, m)', a tuple"),
        ("(n, x)", "an element of a tuple must be an int, got 'x', a float"),
        ("(n, flag)", "an element of a tuple must be an int, got 'flag', a bool"),
        ("shape[x]", "an index must be an int, got 'x', a float"),
        ("n[0]", "what has an index must be a tuple, got 'n', a int"),
        ("len(n)", "an operand of len must be a tuple"),
        ("min(n)", "an operand of min must be a tuple"),
        ("min(shape, n)", "an operand of min must be a number or a bool"),
        ("max()", "max takes 1 operand, got 0"),
        ("bucket()", "bucket takes 1 operand, got 0"),
        ("ceil_div(n)", "ceil_div takes 2 operands, got 1"),
        ("ceil_div(x, 2)", "an operand of ceil_div must be an int"),
        ("mask_axes(shape, 2)", "an operand of mask_axes must be an int"),
        ("shape + n", "a tuple can be joined with a tuple"),
        ("shape * shape", "a tuple can be joined with a tuple"),
        ("shape * x", "a tuple can be joined with a tuple"),
        ("-shape", "an operand must be a number or a bool"),
        ("not shape", "an operand must be a number or a bool"),
        ("shape or n", "an operand of `and` and `or` must be a number"),
        ("1 if shape else 2", "what stands behind `if` must be a number"),
        ("n if flag else shape", "a choice is between tuples or between numbers"),
        ("shape < n", "a tuple compares with tuples only"),
        ("shape == n", "a tuple compares with tuples only"),
    ],
)  # fmt: skip
def test_what_has_no_kind_or_no_bound_is_refused(text: str, said: str) -> None:
    """In one line, at once, before anything is computed."""
    started = time.process_time()
    with pytest.raises(ConditionError) as caught:
        kind_of(text, NAMES)
    message = str(caught.value)
    assert said in message and "\n" not in message and len(message) < 200
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1 <= len(shape) <= 8", BOOL),
        ("min(shape) >= 0 and isfinite(x) and x > 0", BOOL),
        ("shape == other", BOOL),
        ("n", WORD),
        ("x", FLOAT),
        ("2", Kind("int", 2, 2)),
        ("len(shape)", Kind("int", 0, MAX_RANK)),
        ("(1,) * len(shape)", Kind("tuple", 1, 1, 0, MAX_RANK)),
        ("shape + (1, -2)", Kind("tuple", WORD.low, WORD.high, 2, MAX_RANK + 2)),
        ("n * m", Kind("int", -(2**126) + 2**63, 2**126)),
        ("abs(n) % 8", Kind("int", 0, 8)),
        ("ceil_div(abs(m), 64)", Kind("int", 0, 2**63)),
        ("mask_axes(n, len(shape))", Kind("tuple", 0, 64, 0, 64)),
        ("(normalize_axis(n, len(shape)),)", Kind("tuple", 0, MAX_RANK - 1, 1, 1)),
        ("bucket(4, 32, 64)", Kind("int", 4, 64)),
        ("1 if flag else x", Kind("float", 0, 1)),
        ("n > 0 or flag", BOOL),
        ("flag + 1", Kind("int", 1, 2)),
    ],
)
def test_kinds_and_bounds(text: str, kind: Kind) -> None:
    """What is accepted has the bounds that its parts give it."""
    found = kind_of(text, NAMES)
    assert found == kind if kind.name in ("int", "tuple") else found.name == kind.name


def test_the_bounds_hold() -> None:
    """Whatever is accepted keeps within its kind, for the largest values and for any, as printed and as walked."""
    rng, accepted = random.Random(0), 0
    for _ in range(3000):
        text = drawn(rng, 4)
        try:
            kind = kind_of(text, NAMES)
        except ConditionError:
            continue
        accepted += 1
        for values in ({**LARGEST, **WIDE}, some_values(rng), some_values(rng)):
            value, printed = outcome(text, values), as_printed(text, values)
            assert value == printed or (value != value and printed != printed), text
            if not isinstance(value, type):
                within(kind, value, text)
    assert accepted > 500


def within(kind: Kind, value: Any, text: str) -> None:
    if kind.name == "tuple":
        assert kind.least <= len(value) <= kind.most <= MAX_LENGTH, text
        assert all(kind.low <= n <= kind.high for n in value), text
    elif kind.name == "int":
        assert kind.low <= value <= kind.high and int(value).bit_length() <= MAX_BITS, text
    else:
        assert isinstance(value, {"bool": bool, "float": bool | int | float}[kind.name]), text


def outcome(text: str, values: dict[str, Any]) -> Any:
    try:
        return evaluate_condition(text, values)
    except ConditionError:
        return ConditionError


def as_printed(text: str, values: dict[str, Any]) -> Any:
    """What a generated plan computes."""
    try:
        return evaluate(read_condition(text, values), values)
    except (ArithmeticError, ValueError, LookupError):
        return ConditionError


def some_values(rng: random.Random) -> dict[str, Any]:
    def word() -> int:
        return rng.choice([0, 1, -1, 2, 3, 7, 64, 2**63 - 1, -(2**63), rng.randint(-9, 9)])

    shapes = [tuple(word() for _ in range(rng.randint(0, 4))) for _ in range(2)]
    x = rng.choice([0.0, -1.5, float("inf"), float("nan"), 1e308])
    return {"n": word(), "m": word(), "x": x, "flag": rng.random() < 0.5, "shape": shapes[0], "other": shapes[1]}


def drawn(rng: random.Random, depth: int) -> str:
    """A random expression, of any kinds."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*NAMES, "0", "1", "2", "3", "-1", "64", "2.5", "True", "9223372036854775807"])
    a, b, c = (drawn(rng, depth - 1) for _ in range(3))
    return rng.choice([
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} // {b})", f"({a} % {b})", f"-{a}", f"(not {a})",
        f"({a} < {b} <= {c})", f"({a} == {b})", f"({a} and {b})", f"({a} or {b})", f"({a} if {b} else {c})",
        f"({a}, {b})", f"{a}[{b}]", f"len({a})", f"min({a})", f"max({a}, {b})", f"abs({a})", f"prod({a})",
        f"isfinite({a})", f"is_mask({a}, {b})", f"is_suffix_mask({a}, {b})", f"mask_axes({a}, {b})",
        f"normalize_axis({a}, {b})",
        f"ceil_div({a}, {b})", f"round_up({a}, {b})", f"bucket({a}, {b}, {c})", "shape", "other", "n", "m",
    ])  # fmt: skip


def _fastest(call: Callable[[], None]) -> float:
    """Seconds of a processor for the fastest of three calls: others use this machine, too."""

    def taken() -> float:
        started = time.process_time()
        call()
        return time.process_time() - started

    return min(taken() for _ in range(3))


def test_the_most_that_is_accepted_is_soon_computed() -> None:
    """Chains that use the whole budget take milliseconds and little memory."""
    texts = [
        " + ".join(["prod(shape) * prod(other)"] * 60),
        " % ".join(["(prod(shape) * prod(other))"] * 60),
        " + ".join(["(" + " * ".join(["n"] * 90) + ")"] * 5),
        "len(" + " + ".join(["shape"] * 16) + ")",
    ]

    def compute() -> None:
        for text in texts:
            kind_of(text, NAMES)
            evaluate_condition(text, {**LARGEST, **WIDE})

    assert _fastest(compute) < 0.5
    tracemalloc.start()  # which makes it slower
    try:
        compute()
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    ["(" * 1900 + "n" + ")" * 1900, "(" * 3999, "[" * 3999, "-" * 3998 + "n", "n if " * 700, "f'" + "{" * 3000,
     "lambda:" * 570, "1if 1else 1", "'\\d'", "n\n+1", "0o" + "7" * 3990, "1_0" * 1300, "len(" * 900,
     "not " * 900 + "n", "n[" * 1300, "n" * 4000, "\\\n" * 1999 + "n"],
)  # fmt: skip
def test_reading_any_text_is_soon_done(text: str, recwarn: pytest.WarningsRecorder) -> None:
    """The longest texts that a spec may hold are read within the budget, and Python says nothing of them itself."""

    def read() -> None:
        try:
            read_condition(text, NAMES)
        except ConditionError as error:
            assert "\n" not in str(error) and len(str(error)) < 400

    assert _fastest(read) < 0.3 and not recwarn.list


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n // m", "division"),
        ("n % m", "modulo"),
        ("ceil_div(n, m)", "division"),
        ("min(shape)", "empty"),
        ("shape[0]", "out of range"),
        ("mask_axes(n, m)", "outside rank 0"),
        ("normalize_axis(n, m)", "outside rank 0"),
        ("x // m", "has no value for x=1.0, m=0"),
    ],
)
def test_a_condition_without_a_value_says_so(text: str, said: str) -> None:
    """An error of ours, with the condition in it, whatever Python calls it."""
    kind_of(text, NAMES)
    with pytest.raises(ConditionError, match=said):
        evaluate_condition(text, {"n": 1, "m": 0, "x": 1.0, "shape": ()})


@pytest.mark.parametrize("text", ["open('x')", "().__class__", "__import__('os')", "print(n)", "globals()"])
def test_formulas_call_functions_of_conditions_alone(text: str) -> None:
    """What is outside the white list is refused when a spec is read; what calls anything else has no value."""
    with pytest.raises(ConditionError):
        read_condition(text, NAMES)
    if "class" not in text:
        with pytest.raises(NameError):
            evaluate(text, {"n": 1})


@pytest.mark.parametrize(
    ("text", "line"),
    [("(n <\n  m)", "(n < m)"), ("n < m  # why", "n < m"), ("(n)  *\t2", "(n) * 2"), ("n  # a\n", "n")],
)
def test_formulas_are_printed_as_they_are_written(text: str, line: str) -> None:
    """On one line, without comments."""
    assert on_one_line(text) == line


@pytest.mark.parametrize("rank", [2**63 - 1, 2**62, 10**9])
def test_ranks_beyond_any_array_cost_nothing(rank: int) -> None:
    """Masks are walked bit by bit, not rank by rank."""
    started = time.process_time()
    assert axes.mask_axes(0b101, rank) == (0, 2)
    assert axes.is_suffix_mask(1, rank) is False
    assert axes.normalize_axis(-1, rank) == rank - 1
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize("rank", [-1, -(2**63)])
def test_negative_ranks_are_refused(rank: int) -> None:
    """As outside of any shape, and not by Python's word for it."""
    with pytest.raises(InvalidProblem, match="outside rank"):
        axes.mask_axes(1, rank)
    assert axes.is_suffix_mask(1, rank) is False


def test_messages_of_large_masks_end() -> None:
    """A mask of thousands of bits is not printed bit by bit."""
    with pytest.raises(InvalidProblem) as caught:
        axes.mask_axes(2**4000, 3)
    assert len(str(caught.value)) < 200


def test_suffix_masks_are_those_of_the_last_axes() -> None:
    """Against the definition, for all masks of a few axes."""
    for rank in range(5):
        suffixes = {sum(1 << axis for axis in range(first, rank)) for first in range(rank)}
        assert {mask for mask in range(-4, 64) if axes.is_suffix_mask(mask, rank)} == suffixes
        assert {mask for mask in range(-4, 64) if axes.is_mask(mask, rank)} == {*range(2**rank)}


def test_the_functions_of_conditions_take_no_time() -> None:
    """Whatever 64-bit numbers they get."""
    assert bucket(2**63 - 1, 1, 2, 3) == 2**63 - 1
    assert ceil_div(2**63 - 1, 1) == round_up(2**63 - 1, 1) == 2**63 - 1
