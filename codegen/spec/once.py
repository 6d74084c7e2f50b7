"""What is computed of a spec once, and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What functions gave for a spec, the spec among it. Equal to itself alone, so that comparisons of specs end."""

    values: dict[Any, Any] = field(default_factory=dict)


def once(compute: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """`compute`, which asks each spec once: specs are frozen. Nobody may change what it gives."""

    @wraps(compute)
    def kept(spec: S, *args: P.args, **kwargs: P.kwargs) -> T:
        values, key = spec.kept.values, (compute, *args, *kwargs.items())  # type: ignore[attr-defined]
        if key not in values:
            values[key] = compute(spec, *args, **kwargs)
        return values[key]  # type: ignore[no-any-return]

    return kept  # type: ignore[return-value]
