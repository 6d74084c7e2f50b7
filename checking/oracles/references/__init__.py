"""Definitions of ops with hand-written kernels: values in NumPy, and error bounds.

A spec names one as ``oracle: module.function``. None is derived from a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from baracuda.codegen.spec.beside import file_beside

Fields = Mapping[str, Any]  # the descriptor's, by name
Arrays = Mapping[str, Any]  # present arguments, in the caller's shapes
# (xp, fields, inputs) -> outputs; xp is NumPy or autograd's, so no array is changed in place.
Values = Callable[[Any, Fields, Arrays], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Units:
    """Unit roundoffs: of the accumulator, of the element type, and of the type that factors are rounded to.

    The last is 0 where factors keep the accumulator's precision.
    """

    acc: float
    element: float
    factors: float = 0.0


# (fields, inputs, slack, units) -> a bound on the absolute error of each output before it is stored. `slack` is the
# distance of saved inputs from their exact values.
Errors = Callable[[Fields, Arrays, Mapping[str, Any], Units], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Definition:
    """`values` is None for a gradient, which is derived from its forward's.

    With `skips_zeros`, terms of weight 0 may be skipped, so 0 times NaN may be 0.
    """

    errors: Errors
    values: Values | None = None
    skips_zeros: bool = False


def definition_of(spec: Any) -> Definition:
    """The definition of an op whose kernels are written by hand, or of another that names one."""
    return definition(spec.oracle, spec.folder)


def definition(name: str, folder: Path | None = None) -> Definition:
    """The definition that a spec names "module.function": in a file in its folder, else in one of these modules."""
    module, function = name.split(".")
    own = file_beside(folder, f"{module}.py")
    found = getattr(import_module(f".{module}", __name__) if own is None else _module(own), function)
    return Definition(found.errors, found.values, found.skips_zeros)  # a file may have imported another copy of this


@cache
def _module(path: Path) -> ModuleType:
    found = spec_from_file_location(f"oracles_of_{path.parent.name}_{path.stem}", path)
    assert found is not None and found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module
