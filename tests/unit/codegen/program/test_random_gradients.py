"""Derived gradients of random programs, whose values vary along any of the dims, against differences."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from baracuda.codegen.program import Line, Scope, kind_of, parse
from baracuda.codegen.program.derive import derive
from baracuda.codegen.program.derived_lines import Forward
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.space import Space
from baracuda.codegen.spec.functions import shipped_functions

VALUES = {"x": frozenset({"rows", "cols"}), "g": frozenset({"cols"}), "s": frozenset({"rows"}), "k": frozenset[str]()}
SPACE = Space({"rows": 3, "cols": 4})
WRT = {f"d{name}": name for name in VALUES}
FORMS = (
    *("({} + {})", "({} - {})", "({} * {})", "({} * {})", "({} / (abs({}) + 1.5))", "where({} > 0.1, {}, {})"),
    *("maximum({}, {})", "minimum({}, {})", "log(abs({}) + 0.7)", "tanh({})", "abs({})", "softplus({})"),
)
REDUCED = ("sum", "sum", "mean", "mean", "max", "min", "var", "prod", "logsumexp", "norm2")
ALONG = ("cols", "rows", "(rows, cols)")


def _expression(chance: random.Random, names: Sequence[str], depth: int) -> str:
    if depth == 0 or chance.random() < 0.15:
        return chance.choice(names)
    reduces = chance.random() < 0.25
    form = f"{chance.choice(REDUCED)}({{}}, {chance.choice(ALONG)})" if reduces else chance.choice(FORMS)
    return form.format(*(_expression(chance, names, depth - 1) for _ in range(form.count("{}"))))


def _program(chance: random.Random) -> str:
    names, lines = [*VALUES], []
    for number in range(chance.randrange(1, 4)):
        lines.append(f"t{number} = {_expression(chance, names, chance.randrange(1, 4))}")
        names.append(f"t{number}")
    return "\n".join([*lines, f"y = x * 0.5 + {_expression(chance, names, 3)}"])


def _loss(lines: Sequence[Line], arrays: dict[str, Any]) -> float:
    return float(np.sum(evaluate(lines, arrays, SPACE)["y"] * arrays["dy"]))


def _by_differences(lines: Sequence[Line], arrays: dict[str, Any], of: str, step: float) -> Any:
    result = np.zeros_like(arrays[of])
    for place in np.ndindex(result.shape):
        away = np.zeros_like(result)
        away[place] = step
        up, down = (_loss(lines, {**arrays, of: value}) for value in (arrays[of] + away, arrays[of] - away))
        result[place] = (up - down) / (2 * step)
    return result


@pytest.mark.parametrize("pull", [("cols",), (), ("rows", "cols")])
def test_random_programs_are_differentiated(pull: tuple[str, ...]) -> None:
    """Where two steps agree: elsewhere a condition changes between them."""
    compared = 0
    for seed in range(60):
        text = _program(random.Random(seed))
        lines = parse(text, Scope(("rows", "cols"), VALUES, functions=shipped_functions()))
        kinds = dict.fromkeys(VALUES, "float")
        for line in lines:
            kinds[line.name] = kind_of(line.expr, kinds)
        forward = Forward(lines, kinds, {**VALUES, "dy": VALUES["x"]}, frozenset(pull))
        rng = np.random.default_rng(seed)
        arrays = {n: rng.uniform(-1.5, 1.5, SPACE.shape(dims)) for n, dims in (*VALUES.items(), ("dy", VALUES["x"]))}
        found = evaluate(derive(forward, {"dy": "y"}, WRT, ()), arrays, SPACE)
        for name, of in WRT.items():
            near, nearer = (_by_differences(lines, arrays, of, step) for step in (1e-6, 3e-7))
            smooth = np.isclose(near, nearer, 1e-3, 1e-4)
            wrong = ~np.isclose(
                np.broadcast_to(found[name], near.shape), near, 1e-3, 1e-4 * max(1.0, np.abs(near).max())
            )
            assert not (smooth & wrong).any(), f"{name} of\n{text}"
            compared += int(smooth.sum())
    assert compared > 1000
