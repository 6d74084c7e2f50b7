"""References are compared with definitions from elsewhere: every forward op has one, and another result is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from repository import ROOT

from baracuda.checking.oracles.definitions import adapter
from baracuda.checking.problems.subject import Subject
from baracuda.checking.verify import second_opinions
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import SpecError

LOADED = load_folder(ROOT / "specs")
FORWARD = [op for op, loaded in LOADED.items() if loaded.spec.gradient is None]


def _check(op: str) -> None:
    second_opinions.check_definition(Subject(LOADED[op], LOADED, "baracuda.generated"), 1)


def _changed(change: Callable[[Any], Any]) -> Callable[..., Any]:
    original = second_opinions.with_saved

    def with_saved(*args: Any) -> Any:
        arrays, exact = original(*args)
        return arrays, {name: change(np.array(value)) for name, value in exact.items()}

    return with_saved


def _one_larger(value: Any) -> Any:
    """The last element that is no zero is an eighth larger, or another number or truth value."""
    for place in map(tuple, np.argwhere(np.isfinite(value) & (value != 0))[-1:]):
        if value.dtype.kind == "b":
            value[place] = False
        else:
            value[place] += abs(value[place]) / 8 if value.dtype.kind == "f" else 1
    return value


@pytest.mark.parametrize("op", FORWARD)
def test_every_forward_op_agrees_with_its_definition(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LOADED[op].spec.tests.definition
    _check(op)
    monkeypatch.setattr(second_opinions, "with_saved", _changed(_one_larger))
    with pytest.raises(AssertionError, match=r"by the reference and by .* differ at"):
        _check(op)


def test_small_differences_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_opinions, "with_saved", _changed(lambda value: value * (1 + 1e-9)))
    with pytest.raises(AssertionError, match=r"'y' by the reference and by scipy\.special\.softmax differ"):
        _check("softmax")


def test_another_shape_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_opinions, "adapter", lambda name: lambda fields, arrays: {"y": arrays["x"][None]})
    with pytest.raises(AssertionError, match="shapes"):
        _check("softmax")


def test_names_without_an_adapter_are_refused() -> None:
    with pytest.raises(SpecError, match=r"softplus', for which there is no adapter; known are .*softmax"):
        adapter("scipy.special.softplus")
