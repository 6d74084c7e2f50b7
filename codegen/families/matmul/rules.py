"""Rules of the matmul family: passes, at least one of which is a matrix product, of dims of one axis each."""

from __future__ import annotations

from collections.abc import Iterator

from ...conditions.parse import fields_of as condition_fields
from ...program import ProgramError
from ...program.tree import reads
from ...spec.checks.finding import Finding, expression, fields_of, meant
from ..map import rules as map_rules
from ..map.program import split
from ..map.spec import MapSpec
from .claims import ELEMENTS
from .passes import passes
from .product import Product, dtypes_of, kind_of_factor


def program(spec: MapSpec) -> Iterator[Finding]:
    """What kernels of the family do not compute."""
    try:
        cut = passes(spec)
    except ProgramError as error:
        yield ("program",), error.number, str(error)
        return
    kinds = {kind_of_factor(dtypes_of(name, spec)) for of in cut for name in _factors(of.product)}
    if len(kinds) > 1:
        listed = " and ".join(", ".join(tags) for tags in sorted(filter(None, kinds)))
        yield ("program",), 0, f"products of {listed} need kernels of two kinds; make them two ops"
    for of in cut:
        if of.product and (read := next(iter(of.parts.reads.values()), None)):
            text = f"{read.tensor!r} is read at a computed place where a product is stored; make an array of it: T(...)"
            yield ("program",), of.parts.lines[0].number, text


def chunks(spec: MapSpec) -> Iterator[Finding]:
    """What is worked on in chunks is a field that says nothing else."""
    for name, text in spec.chunks.items():
        place, dim = ("chunks", name), spec.dims.get(name)
        yield from expression(text, fields_of(spec), place, "int")
        if dim is None:
            yield place, 0, f"unknown dim {name!r}; {meant(name, spec.dims)}"
        elif dim.of not in spec.descriptor:
            yield place, 0, f"{name!r} is the expression {dim.of!r}; a dim in chunks is a field of its own"
        elif other := next((d for d, of in spec.dims.items() if d != name and dim.of in condition_fields(of.of)), None):
            yield place, 0, f"{dim.of!r} is also what {other!r} is made of; a dim in chunks is a field of its own"
        elif any(dim.of in reads(line.expr) for of in spec.by_kind.values() for line in split(of).lines):
            yield ("program",), 0, f"{dim.of!r} is the extent of a chunk in a program with chunks; write size({name})"


def _factors(product: object) -> tuple[str, ...]:
    return product.factors if isinstance(product, Product) else ()


def contradictions(spec: MapSpec) -> Iterator[Finding]:
    """What no kernel of the family could keep."""
    yield from map_rules.contradictions(spec, passes)


def own_memory(spec: MapSpec) -> Iterator[Finding]:
    for name, tensor in spec.outputs.items():
        if tensor.updates is not None:
            text = "the matmul family's outputs have memory of their own; leave `updates` out"
            yield ("outputs", name, "updates"), 0, text


def aliasing(spec: MapSpec) -> Iterator[Finding]:
    """Outputs have memory of their own."""
    for name, output in spec.outputs.items():
        for other in output.may_alias:
            text = f"{name!r} cannot share memory with {other!r}: blocks read it while others store {name!r}"
            yield ("outputs", name, "may_alias"), 0, text


def sizes(spec: MapSpec) -> Iterator[Finding]:
    """Dims are one axis each, and elements are those that kernels multiply."""
    for name, dim in spec.dims.items():
        field = spec.descriptor.get(dim.of)
        if dim.axes is not None or (field is not None and field.type == "shape"):
            text = f"{name!r} is the axes of a shape; a matrix product's dims are one axis each, of an int"
            yield ("dims", name), 0, text
    for dtype in spec.dtypes:
        if dtype not in ELEMENTS:
            yield ("dtypes",), 0, f"{dtype} is not multiplied by any kernel; there are {', '.join(ELEMENTS)}"
    for section, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for name, tensor in tensors.items():
            if any(len(group) > 1 for group in tensor.groups):
                text = f"{name!r} has a product of dims; the axes of a matrix product are one dim each"
                yield (section, name, "dims"), 0, text
