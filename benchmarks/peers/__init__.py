"""What plans are measured against: a module for each library, asked for its peers when it can be imported.

A module has `peers()`, which imports its library and gives a maker for each name. A maker gets the case and answers
with a function that turns tensors into a call without arguments, or with None when the peer has no such op; the call
starts the work on the current stream and returns its outputs by the names of our arguments.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from ..case import Case

Tensors = Mapping[str, Any]
Call = Callable[[], dict[str, Any]]
Body = Callable[[Tensors], Call]
Maker = Callable[[Case], Body | None]


def found(names: tuple[str, ...] = ()) -> tuple[dict[str, Maker], dict[str, str]]:
    """The peers that can be had, or those of `names` only, and why each missing module's cannot."""
    makers: dict[str, Maker] = {}
    missing: dict[str, str] = {}
    for name in modules():
        try:
            makers |= import_module(f"{__name__}.{name}").peers()
        except Exception as error:  # whatever a library does while it is imported
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return {n: m for n, m in makers.items() if not names or n in names}, missing


def modules() -> Iterator[str]:
    """The modules of this folder."""
    yield from sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
