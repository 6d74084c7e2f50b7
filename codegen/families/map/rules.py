"""Rules of the map family: dims that are the axes of fields, products of dims, and what passes may overwrite."""

from __future__ import annotations

import re
from collections.abc import Iterator

from baracuda.runtime.families.map.geometry import MAX_AXES

from ...program import ProgramError
from ...spec.checks import everywhere, program
from ...spec.checks.finding import Finding, expression, fields_of, meant
from ...spec.scope import kinds_of
from ...spec.types import sort_of
from .kinds import Cutter
from .passes import Pass, passes
from .program import Parts, copies_of, queries_of, split
from .spec import MapSpec

MAX_OPERANDS = 24  # tensors and indices; more than 12 take arguments beyond 4 KiB, as drivers of CUDA 12.1 on do
_GROUP = re.compile(r"[a-z][a-z0-9_]*( \* [a-z][a-z0-9_]*)*")
_COMPUTED = ("f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "bool", "c64", "c128")


def dims(spec: MapSpec) -> Iterator[Finding]:
    axes, shared = 0, [n for n, dim in spec.dims.items() if dim.axes is not None]
    fields = [n for n, f in spec.descriptor.items() if f.type in ("shape", "int")]
    for name, dim in spec.dims.items():
        field, place = spec.descriptor.get(dim.of), ("dims", name, "of")
        if name not in shared[1:]:
            axes += 1
        if field is None and not dim.of.isidentifier():
            yield from expression(dim.of, fields_of(spec), place, "int")
        elif field is None or field.type not in ("shape", "int"):
            yield place, 0, f"{dim.of!r} is no shape and no int of the descriptor; {meant(dim.of, fields)}"
    if shared:
        yield from _shared(spec, shared)
    if axes > MAX_AXES:
        yield ("dims",), 0, f"make {axes} axes or more; the map family has room for {MAX_AXES}"


def _shared(spec: MapSpec, shared: list[str]) -> Iterator[Finding]:
    """Dims that share out the axes of a shape: what the rest leaves, and neighbours."""
    of = {spec.dims[name].of for name in shared}
    field = spec.descriptor.get(min(of))
    if len(of) > 1 or (field is not None and field.type != "shape"):
        text = f"{', '.join(shared)} must share out the axes of one shape, got {', '.join(sorted(of))}"
        yield ("dims", shared[0]), 0, text
        return
    if [spec.dims[name].axes for name in shared].count("rest") != 1:
        yield ("dims", shared[0]), 0, f"one of {', '.join(shared)} must have `axes: rest`, what the others leave"
    for name in shared:
        if (axes := str(spec.dims[name].axes)) != "rest":
            yield from expression(axes, fields_of(spec), ("dims", name, "axes"), "tuple")
    if beside := [n for n, dim in spec.dims.items() if n not in shared and dim.of in of]:
        yield ("dims", beside[0]), 0, f"{beside[0]!r} is all axes of {min(of)}, which {', '.join(shared)} share out"
    order = list(spec.dims)
    if order.index(shared[-1]) - order.index(shared[0]) >= len(shared):
        yield ("dims", shared[0]), 0, f"{', '.join(shared)} share the axes of {min(of)}; list them one after the other"


def tensors(spec: MapSpec) -> Iterator[Finding]:
    product_of: dict[str, tuple[str, ...]] = {}
    for section, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for name, tensor in tensors.items():
            place = (section, name, "dims")
            if bad := next((entry for entry in tensor.dims if not _GROUP.fullmatch(entry)), None):
                yield place, 0, f"{bad!r} is neither a dim nor a product of dims like 'copy * cell'"
                continue
            dims = [dim for group in tensor.groups for dim in group]
            for dim in dims:
                if dim not in spec.dims:
                    yield place, 0, f"unknown dim {dim!r}; {meant(dim, spec.dims)}"
            if len(set(dims)) != len(dims):
                yield place, 0, f"{name!r} names a dim twice: {', '.join(dims)}"
            for group in (g for g in tensor.groups if len(g) > 1):
                yield from _product(spec, (section, name), group, product_of)
            yield from everywhere.outside(spec, (section, name), tensor)
    yield from everywhere.tensors(spec)


def whole(spec: MapSpec) -> Iterator[Finding]:
    for name in spec.chunks:
        text = "a map hands over nothing that chunks would bound; leave them out"
        yield ("chunks", name), 0, text


def own_memory(spec: MapSpec) -> Iterator[Finding]:
    for name, tensor in spec.outputs.items():
        if tensor.updates is not None:
            text = "the map family's outputs have memory of their own; use `may_alias`"
            yield ("outputs", name, "updates"), 0, text


def _product(
    spec: MapSpec, place: tuple[str, str], group: tuple[str, ...], product_of: dict[str, tuple[str, ...]]
) -> Iterator[Finding]:
    key_path, text = (*place, "dims"), " * ".join(group)
    sorts = {dim: _sort_of_axes(spec, dim) for dim in group if dim in spec.dims}
    if "shared" in sorts.values() or len({*sorts.values()}) > 1:
        other = next((dim for dim, sort in sorts.items() if sort != "int"), group[0])
        why = "give all dims a shape, or all an int"
        yield key_path, 0, f"{text!r} multiplies axis by axis, and {other!r} has others; {why}"
    for dim in group:
        if product_of.setdefault(dim, group) != group:
            other = " * ".join(product_of[dim])
            yield key_path, 0, f"{dim!r} is part of {other!r} already; it can be part of one product only"


def _sort_of_axes(spec: MapSpec, dim: str) -> str:
    """Whether a dim is one axis, the axes of a shape, or shares out those of a shape."""
    field = spec.descriptor.get(spec.dims[dim].of)
    return "shared" if spec.dims[dim].axes else "shape" if field is not None and field.type == "shape" else "int"


def contradictions(spec: MapSpec, passes: Cutter = passes) -> Iterator[Finding]:
    """What no kernel of the family could do or keep."""
    try:
        parts, cut = split(spec), passes(spec)
    except ProgramError as error:
        yield ("program",), error.number, str(error)
        return
    yield from (finding for each in cut for finding in _operands(each))
    yield from _reads(spec, parts)
    yield from _overwritten(cut)
    if set(copies_of(spec, parts)) != set(spec.outputs):
        sorts = {sort_of(dtype): dtype for dtype in spec.dtypes}
        for dtype in spec.dtypes:
            if dtype not in _COMPUTED:
                yield ("dtypes",), 0, f"{dtype} can only be moved; a program that computes takes {', '.join(_COMPUTED)}"
        if len(sorts) > 1:
            why = "an op is of floats, of ints, of bools or complex"
            yield ("dtypes",), 0, f"{' and '.join(sorts.values())} compute differently; {why}"
        kinds = kinds_of(spec, parts.lines)
        for line in parts.lines if sorts.keys().isdisjoint(("float", "complex")) else ():
            if kinds[line.name] == "float":
                why = f"a program on {spec.dtypes[0]} is exact; leave floats to an op of floats"
                text = f"{line.name!r} is a float, and {why}"
                yield ("program",), line.number, text
    yield from program.promises(spec)
    yield from _arch(spec)


def _operands(of: Pass) -> Iterator[Finding]:
    indices = {query for query in queries_of(of.parts) if query.what == "index"}
    placed = [name for name in of.spec.inputs if of.parts.placed(name)]
    arguments = [n for n, tensor in of.spec.arguments.items() if tensor.dims or n in of.spec.outputs]
    if len(arguments) + len(placed) + len(indices) > MAX_OPERANDS:
        reads = f", {len(placed)} of them at computed places," if placed else ""
        text = f"{len(arguments)} arguments{reads} and {len(indices)} indices"
        yield ("inputs",), 0, f"{text}; there is room for {MAX_OPERANDS} together"


def _overwritten(cut: tuple[Pass, ...]) -> Iterator[Finding]:
    """Outputs in the memory of an input that a later pass reads."""
    for place, of in enumerate(cut):
        for name, output in of.spec.outputs.items():
            for other in output.may_alias:
                if any(other in later.spec.inputs for later in cut[place + 1 :]):
                    text = f"{name!r} cannot share memory with {other!r}, which is read again after {name!r} is stored"
                    yield ("outputs", name, "may_alias"), 0, text


def outside(spec: MapSpec) -> Iterator[Finding]:
    """No kind reads a tensor at a computed place that says what lies outside."""
    parts = [split(of) for of in spec.by_kind.values()]
    for name, tensor in spec.inputs.items():
        if tensor.outside is not None and not any(of.placed(name) for of in parts):
            yield ("inputs", name, "outside"), 0, f"{name!r} is never read at a computed place; drop `outside`"


def _reads(spec: MapSpec, parts: Parts) -> Iterator[Finding]:
    """What cannot be done with inputs that are read at computed places."""
    for name, tensor in spec.inputs.items():
        place, dims = ("inputs", name), parts.placed(name)
        if not dims:
            continue
        if tensor.optional:
            yield (*place, "optional"), 0, f"{name!r} is read at computed places, so it cannot be absent"
        if bad := next((d for d in dims if (f := spec.descriptor.get(spec.dims[d].of)) and f.type == "shape"), None):
            text = f"{name!r} is read at a computed place along {bad}, which is the axes of a shape"
            yield (*place, "dims"), 0, f"{text}; a place is along one axis, whose extent is an int"
        for output in (n for n, t in spec.outputs.items() if name in t.may_alias):
            text = f"{output!r} cannot share memory with {name!r}, whose elements are read at other places, too"
            yield ("outputs", output, "may_alias"), 0, text


def _arch(spec: MapSpec) -> Iterator[Finding]:
    for arch, need in spec.arch.items():
        if need.needs:
            yield ("arch", arch, "needs"), 0, "the map family's kernels use no tma, wgmma or cluster; leave it out"
        if arch.endswith("a"):
            yield ("arch", arch), 0, "the map family's kernels run on every architecture from one on; leave out the 'a'"
    if len(spec.arch) > 1:
        yield ("arch",), 0, "the map family's kernels are the same for every architecture; name the least one"
