"""The names of a program and their types."""

from __future__ import annotations

from ..program import Const, Line, Name, ProgramError, Scope, kind_of
from ..program.tree import Axes
from .once import once
from .parts import ReadTensor
from .spec import ProgramSpec


@once
def scope_of(spec: ProgramSpec) -> Scope:
    """The names that the program of `spec` may use."""
    values = {name: t.over for name, t in spec.inputs.items()}
    values |= {name: frozenset() for name, f in spec.descriptor.items() if f.is_number}
    optional = frozenset(n for n, t in spec.tensors.items() if t.optional)
    kinds = {name: spec.sort_of(tensor) for name, tensor in spec.tensors.items()}
    return Scope(tuple(spec.dims), values, optional, spec.functions, axes_of(spec), kinds)


def axes_of(spec: ProgramSpec) -> dict[str, Axes]:
    """The inputs that may be read at computed places."""
    return {name: Axes(t.dims, _outside(t, spec.sort_of(t))) for name, t in spec.inputs.items()}


def _outside(tensor: ReadTensor, sort: str) -> Const | Name | None:
    """What is read outside of a tensor, of its own kind."""
    if tensor.outside is None:
        return None
    if isinstance(tensor.outside, str):
        return Name(tensor.outside)
    is_whole = sort == "int" and float(tensor.outside).is_integer()
    return Const({"bool": bool, "int": int if is_whole else float}.get(sort, float)(tensor.outside))


def kinds_of(spec: ProgramSpec, lines: tuple[Line, ...]) -> dict[str, str]:
    """Whether each name of the program is a float, an int, a bool or complex."""
    kinds = {n: spec.sort_of(t) for n, t in spec.inputs.items()}
    kinds |= {n: f.type for n, f in spec.descriptor.items() if f.is_number}
    for line in lines:
        try:
            kinds[line.name] = kind_of(line.expr, kinds)
        except ProgramError as error:
            raise ProgramError(str(error), line.number) from None
    return kinds
