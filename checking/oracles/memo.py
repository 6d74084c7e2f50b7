"""Memoised oracle results: expected values do not depend on the kernel, so they are computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from ..problems.problem import Problem

P = ParamSpec("P")
T = TypeVar("T")
_answers: ContextVar[dict[Any, Any] | None] = ContextVar("answers", default=None)


@contextmanager
def memo() -> Iterator[None]:
    """Memoise oracle results in the body and in processes forked from it."""
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def memoized(function: Callable[Concatenate[Problem, P], T]) -> Callable[Concatenate[Problem, P], T]:
    """Memoise a function that depends on its arguments, plan and descriptor alone."""

    @wraps(function)
    def ask(problem: Problem, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if (answers := _answers.get()) is None:
            return function(problem, *args, **kwargs)
        request = problem.descriptor, tuple(problem.arguments), problem.plan.sku, _key(args), _key(kwargs)
        key = function.__name__, *request
        if key not in answers:
            answers[key] = function(problem, *args, **kwargs)
        answer: T = _copy(answers[key])
        return answer

    return ask


def _key(value: Any) -> Any:
    match value:
        case np.ndarray():
            content = np.ascontiguousarray(value)
            return value.shape, value.dtype.str, hashlib.sha1(content.tobytes(), usedforsecurity=False).digest()
        case Mapping():
            return tuple((name, _key(item)) for name, item in value.items())
        case tuple() | list():
            return tuple(map(_key, value))
    fields = getattr(value, "__dataclass_fields__", ())
    return tuple(_key(getattr(value, name)) for name in fields) if fields else value


def _copy(answer: Any) -> Any:
    """A copy, since callers modify mappings."""
    match answer:
        case dict():
            return dict(answer)
        case tuple():
            return tuple(map(_copy, answer))
    return answer
