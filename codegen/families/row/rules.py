"""Rules of the row family: two dims, a program in passes, and what it can promise."""

from __future__ import annotations

from collections.abc import Iterator

from ...program import ProgramError
from ...spec.checks import everywhere, program
from ...spec.checks.finding import Finding, expression, fields_of, meant
from .program import row_lines, unplaced
from .spec import RowSpec


def dims(spec: RowSpec) -> Iterator[Finding]:
    for name, dim in spec.dims.items():
        field = spec.descriptor.get(dim.of)
        if field is None or field.type != "shape":
            shapes = [n for n, f in spec.descriptor.items() if f.type == "shape"]
            yield (("dims", name, "of"), 0, f"{dim.of!r} is not a shape of the descriptor; {meant(dim.of, shapes)}")
        if dim.axes != "rest":
            yield from expression(dim.axes, fields_of(spec), ("dims", name, "axes"), "tuple")
    if len({d.of for d in spec.dims.values()}) > 1:
        several = ", ".join(d.of for d in spec.dims.values())
        yield ("dims",), 0, f"the dims share out the axes of one shape, got {several}"
    if [d.axes for d in spec.dims.values()].count("rest") != 1 or len(spec.dims) != 2:
        yield ("dims",), 0, "the row family needs two dims: the rows, with `axes: rest`, and the columns"


def tensors(spec: RowSpec) -> Iterator[Finding]:
    for section, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for name, tensor in tensors.items():
            place = (section, name, "dims")
            for dim in tensor.dims:
                if dim not in spec.dims:
                    yield place, 0, f"unknown dim {dim!r}; {meant(dim, spec.dims)}"
            if len(set(tensor.dims)) != len(tensor.dims):
                yield place, 0, f"{name!r} names a dim twice: {', '.join(tensor.dims)}"
            yield from everywhere.outside(spec, (section, name), tensor)
    yield from everywhere.tensors(spec)


def arch(spec: RowSpec) -> Iterator[Finding]:
    for dtype in spec.dtypes:
        if dtype not in ("f32", "f16", "bf16", "f64"):
            yield ("dtypes",), 0, f"the row family computes in f32, f16, bf16 and f64, got {dtype}"
    for arch, need in spec.arch.items():
        if need.needs:
            yield ("arch", arch, "needs"), 0, "the row family's kernels use no tma, wgmma or cluster; leave it out"
        if arch.endswith("a"):
            yield ("arch", arch), 0, "the row family's kernels run on every architecture from one on; leave out the 'a'"
    if len(spec.arch) > 1:
        yield ("arch",), 0, "the row family's kernels are the same for every architecture; name the least one"


def contradictions(spec: RowSpec) -> Iterator[Finding]:
    """Promises that cannot be kept, whatever the kernel."""
    try:
        row_lines(spec)
    except ProgramError as error:
        yield ("program",), error.number, str(error)
        return
    for name in unplaced(spec):
        yield ("inputs", name, "outside"), 0, f"{name!r} is never read at a computed place; drop `outside`"
    yield from program.promises(spec)
