"""Rules of the matmul family: one product of two inputs, and outputs over its rows and columns."""

from __future__ import annotations

from collections.abc import Iterator

from ...program import ProgramError
from ...spec.checks.finding import Finding
from ..map.program import queries_of, split
from ..map.spec import MapSpec
from .claims import ELEMENTS
from .product import product_of


def program(spec: MapSpec) -> Iterator[Finding]:
    """What kernels of the family do not compute."""
    try:
        parts, product = split(spec), product_of(spec)
    except ProgramError as error:
        yield ("program",), error.number, str(error)
        return
    if read := next(iter(parts.reads.values()), None):
        text = f"{read.tensor!r} is read at a computed place; an op of its own may gather what a product takes"
        yield ("program",), product.line.number, text
    if query := next((q for q in queries_of(parts) if q.what == "index"), None):
        text = f"index({query.of}) is of no use to a matrix product; pass an array over {query.of}"
        yield ("program",), product.line.number, text
    over = {dim for role, dim in product.dims.items() if role != "depth"}
    for line in parts.lines:
        if line.name not in spec.outputs:
            continue
        if line.name not in parts.late:
            yield ("program",), line.number, f"{line.name!r} is not made of the product; leave it to an op of its own"
        elif spec.outputs[line.name].over != over:
            wanted = ", ".join(dim for dim in spec.dims if dim in over)
            text = f"{line.name!r} is made of the product, so its dims are {wanted}"
            yield ("outputs", line.name, "dims"), 0, text


def factors(spec: MapSpec) -> Iterator[Finding]:
    """All kinds multiply the same arrays."""
    products = {name: product_of(of) for name, of in spec.by_kind.items()}
    first = next(iter(products.values()))
    for name, of in products.items():
        if (of.left, of.right, of.dims) != (first.left, first.right, first.dims):
            text = f"multiplies {of.left!r} and {of.right!r}, other kinds {first.left!r} and {first.right!r}"
            yield ("kinds", name, "program"), of.line.number, f"{text}; kinds share their factors"
    for name in (first.left, first.right):
        tensor = spec.inputs[name]
        if tensor.optional:
            yield ("inputs", name, "optional"), 0, f"{name!r} is a factor of the product, so it cannot be absent"
        if tensor.dtype != ("T",):
            yield ("inputs", name, "dtype"), 0, f"{name!r} is a factor of the product, so its dtype is T"
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
