"""Rules of the families whose math is a program: everything that a caller passes has an effect."""

from __future__ import annotations

from collections.abc import Iterator

from ...conditions.parse import fields_of
from ...program import parse
from ...program.tree import Name, Query, Read, walk
from ..scope import scope_of
from ..spec import ProgramSpec
from .finding import Finding


def inputs(spec: ProgramSpec) -> Iterator[Finding]:
    """An input that an output updates may be written alone."""
    read = {name for of in spec.by_kind.values() for name in _read_by(of, of.program)}
    updated = {tensor.updates for tensor in spec.outputs.values()}
    for name in spec.inputs:
        if name not in read and name not in updated:
            yield ("inputs", name), 0, f"input {name!r} is never read; use it in the program, or drop it"


def fields(spec: ProgramSpec) -> Iterator[Finding]:
    """Of a gradient, the forward's reference may read what the program does not."""
    if spec.gradient is not None:
        return
    texts = [(of, text) for of in spec.by_kind.values() for text in (of.program, of.reference or "")]
    read = {name for of, text in texts for name in _read_by(of, text)}
    read |= {name for dim in spec.dims.values() for name in fields_of(dim.of)}
    read |= {tensor.optional for tensor in (*spec.inputs.values(), *spec.outputs.values()) if tensor.optional}
    read |= {field.same_as for field in spec.descriptor.values() if field.same_as}
    conditions = [requirement.that for requirement in spec.require]
    conditions += [dim.axes for dim in spec.dims.values() if dim.axes and dim.axes != "rest"]
    conditions += spec.other_expressions
    read.update(name for text in conditions for name in fields_of(text))
    for name, field in spec.descriptor.items():
        if name not in read and field.type != "kind":
            yield ("descriptor", name), 0, f"field {name!r} is never read; use it in the program, or drop it"


def _read_by(spec: ProgramSpec, program: str) -> set[str]:
    """The tensors and fields that a program reads, or asks the presence of, for its outputs."""
    names, live = {Name: "id", Query: "of", Read: "tensor"}, {*spec.outputs}
    for line in reversed(parse(program, scope_of(spec))):
        parts = walk(line.expr) if line.name in live else ()
        live |= {getattr(part, names[type(part)]) for part in parts if type(part) in names}
    return live - {*spec.outputs}
