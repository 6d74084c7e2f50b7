"""`run_unchecked`, `bind` and `can_implement` are called as `run` is, and documented with its arguments."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import pytest

import baracuda.generated
import baracuda.runtime as rt
from baracuda.ops.signature import plans_of

PLANS = {plan.OP: plan for plan in plans_of(baracuda.generated)}
RETURNS = {"run_unchecked": type(None), "bind": rt.BoundLaunch, "can_implement": rt.Verdict}


class Sample:
    """A plan's `run`, whose inner methods say what they were given."""

    def run(self, *, x: rt.Array, y: rt.Array = None, stream: rt.Stream = None) -> None:
        return self._run((x, y), stream)

    run_unchecked, bind, can_implement = rt.entry_points(run)

    def _run(self, *given: Any) -> Any:
        return "run", given

    def _run_unchecked(self, *given: Any) -> Any:
        return "run_unchecked", given

    def _bind(self, *given: Any) -> Any:
        return "bind", given

    def _can_implement(self, *given: Any) -> Any:
        return "can_implement", given


@pytest.mark.parametrize("name", ["run", *RETURNS])
def test_each_calls_its_own_method_with_the_same_arguments(name: str) -> None:
    call: Any = getattr(Sample(), name)
    assert call(x=1, stream=2) == (name, ((1, None), 2))
    with pytest.raises(TypeError, match=rf"Sample\.{name}\(\) got an unexpected keyword argument 'z'"):
        call(x=1, z=2)
    with pytest.raises(TypeError, match="positional"):
        call(1)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'x'"):
        call()


@pytest.mark.parametrize("name", RETURNS)
def test_names(name: str) -> None:
    method = getattr(Sample, name)
    assert (method.__name__, method.__qualname__, method.__module__) == (name, f"Sample.{name}", __name__)


@pytest.mark.parametrize("op", PLANS)
def test_plans_have_them(op: str) -> None:
    plan: Any = PLANS[op]
    given = inspect.signature(plan.run).parameters
    own, _, told = (inspect.getdoc(plan.run) or "").partition("\n\n")
    for name, returns in RETURNS.items():
        assert inspect.signature(getattr(plan, name)).parameters == given
        assert typing.get_type_hints(getattr(plan, name))["return"] is returns
        sentence, _, arguments = (inspect.getdoc(getattr(plan, name)) or "").partition("\n\n")
        assert arguments == told != "" and sentence and sentence != own
