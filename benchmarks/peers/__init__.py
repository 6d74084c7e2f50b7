"""The other libraries: one module each, which is used if its library can be imported.

A module has `peers()`, which imports its library and returns a maker per name. A maker takes the case and returns None
if the library lacks the op, or a function that turns tensors into a call without arguments; the call starts the work on
the current stream and returns its outputs by our arguments' names.
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


def available(names: tuple[str, ...] = ()) -> tuple[dict[str, Maker], dict[str, str]]:
    """The available peers, or those of `names`, and why the other modules' are not."""
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
