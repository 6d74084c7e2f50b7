"""The names of a program and their types."""

from __future__ import annotations

from ..program import Line, ProgramError, Scope, kind_of
from .spec import MapSpec, RowSpec

Programmed = RowSpec | MapSpec


def scope_of(spec: Programmed) -> Scope:
    """The names that the program of `spec` may use."""
    values = {name: frozenset(t.dims) for name, t in spec.inputs.items()}
    values |= {name: frozenset() for name, f in spec.descriptor.items() if f.type != "shape"}
    optional = frozenset(n for n, t in spec.tensors.items() if t.optional)
    return Scope(tuple(spec.dims), values, optional, spec.functions)


def kinds_of(spec: Programmed, lines: tuple[Line, ...]) -> dict[str, str]:
    """Whether each name of the program is a float, an int or a bool."""
    kinds = {n: "int" if t.dtype[0].startswith("i") else "float" for n, t in spec.inputs.items()}
    kinds |= {n: f.type for n, f in spec.descriptor.items() if f.type != "shape"}
    for line in lines:
        try:
            kinds[line.name] = kind_of(line.expr, kinds)
        except ProgramError as error:
            raise ProgramError(str(error), line.number) from None
    return kinds
