"""What one key of a spec means for another: each rule yields the place and the message of what breaks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from .audit.limits import LIMITS
from .conditions import ConditionError, read_condition
from .names import derived_names, is_reserved, is_reserved_category, is_reserved_op
from .program import Line, ProgramError, Scope, parse
from .program.cuda import kind_of, to_cuda
from .program.ops import OPS
from .program.tree import Call, Cast, Query, Reduce, reads, walk
from .spec import FieldSpec, OpSpec, TensorSpec

Place = tuple[str | int, ...]
Finding = tuple[Place, int, str]  # place, lines below it, message
Rule = Callable[[OpSpec], Iterator[Finding]]

# Text that would end the comment or the docstring that it is printed into.
_ENDS_ITS_PLACE = ('"""', "\\", "??/")


def findings(spec: OpSpec) -> list[Finding]:
    """Everything in which the spec contradicts itself; an empty list means it can be lowered."""
    found: list[Finding] = []
    for rule in RULES:
        found += list(rule(spec))
        if found:
            return found
    return found


def scope_of(spec: OpSpec) -> Scope:
    """What the program of `spec` may name."""
    values = {name: frozenset(t.dims) for name, t in spec.inputs.items()}
    values |= {name: frozenset() for name, f in spec.descriptor.items() if f.type != "shape"}
    return Scope(tuple(spec.dims), values, frozenset(n for n, t in spec.tensors.items() if t.optional))


def kinds_of(spec: OpSpec, lines: tuple[Line, ...]) -> dict[str, str]:
    """Whether each name of the program is a float, an int or a bool."""
    kinds = {n: "int" if t.dtype[0].startswith("i") else "float" for n, t in spec.inputs.items()}
    kinds |= {n: f.type for n, f in spec.descriptor.items() if f.type != "shape"}
    for line in lines:
        try:
            kinds[line.name] = kind_of(line.expr, kinds)
        except ProgramError as error:
            raise ProgramError(str(error), line.number) from None
    return kinds


def _near(name: str, names: object) -> str:
    candidates = [str(n) for n in names]  # type: ignore[attr-defined]
    near = get_close_matches(name, candidates, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(candidates) or 'none'}"


def _names(spec: OpSpec) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    if is_reserved_op(spec.op):
        yield ("op",), 0, f"{spec.op!r} is a reserved word; choose another name"
    if is_reserved_category(spec.category):
        yield ("category",), 0, f"{spec.category!r} is a reserved word; choose another name"
    for section in ("descriptor", "dims", "inputs", "outputs"):
        for name in getattr(spec, section):
            if is_reserved(name) and not (section == "dims" and name in ("rows", "cols")):
                yield (section, name), 0, f"{name!r} is a reserved word; choose another name"
            elif name in seen:
                yield (section, name), 0, f"{name!r} is already a name of {seen[name]}; choose another name"
            seen[name] = section
    if not spec.outputs:
        yield ("outputs",), 0, "an op needs at least one output"


def _texts(spec: OpSpec) -> Iterator[Finding]:
    texts: dict[Place, str] = {(key,): getattr(spec, key) for key in ("doc", "formula", "source")}
    for section in ("descriptor", "inputs", "outputs"):
        texts |= {(section, name, "doc"): x.doc for name, x in getattr(spec, section).items()}
    for place, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if bad := next((b for b in _ENDS_ITS_PLACE if b in line), None):
                below = number if place == ("formula",) else 0
                yield place, below, f"{bad!r} cannot stand in a comment of generated code; write it in words"


def _fields(spec: OpSpec) -> Iterator[Finding]:
    for name, field in spec.descriptor.items():
        if field.default is not None and not _is_default(field):
            yield ("descriptor", name, "default"), 0, f"{name!r} must be of type {field.type}, got {field.default!r}"
    if len(set(spec.dtypes)) != len(spec.dtypes):
        yield ("dtypes",), 0, f"lists one twice: {', '.join(spec.dtypes)}"


def _is_default(field: FieldSpec) -> bool:
    return _fits(field.type, field.default) and math.isfinite(field.default or 0)


def _dims(spec: OpSpec) -> Iterator[Finding]:
    for name, dim in spec.dims.items():
        field = spec.descriptor.get(dim.of)
        if field is None or field.type != "shape":
            shapes = [n for n, f in spec.descriptor.items() if f.type == "shape"]
            yield (
                ("dims", name, "of"),
                0,
                f"{dim.of!r} is not a shape of the descriptor; {_near(dim.of, shapes)}",
            )
        if dim.axes != "rest":
            yield from _condition(spec, dim.axes, ("dims", name, "axes"))
    if len({d.of for d in spec.dims.values()}) > 1:
        several = ", ".join(d.of for d in spec.dims.values())
        yield ("dims",), 0, f"the dims share out the axes of one shape, got {several}"
    if [d.axes for d in spec.dims.values()].count("rest") != 1 or len(spec.dims) != 2:
        yield ("dims",), 0, "the row family needs two dims: the rows, with `axes: rest`, and the columns"


def _conditions(spec: OpSpec) -> Iterator[Finding]:
    for i, requirement in enumerate(spec.require):
        yield from _condition(spec, requirement.that, ("require", i, "that"))


def _condition(spec: OpSpec, text: str, place: Place) -> Iterator[Finding]:
    try:
        read_condition(text, tuple(spec.descriptor))
    except ConditionError as error:
        yield place, 0, str(error)


def _tensors(spec: OpSpec) -> Iterator[Finding]:
    for section, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for name, tensor in tensors.items():
            place = (section, name)
            for dim in tensor.dims:
                if dim not in spec.dims:
                    yield (*place, "dims"), 0, f"unknown dim {dim!r}; {_near(dim, spec.dims)}"
            if len(set(tensor.dims)) != len(tensor.dims):
                yield (*place, "dims"), 0, f"{name!r} names a dim twice: {', '.join(tensor.dims)}"
            for key, message in _stored(tensor):
                yield (*place, key), 0, message
            field = spec.descriptor.get(tensor.optional) if tensor.optional else None
            if tensor.optional and (field is None or field.type != "bool"):
                flags = [n for n, f in spec.descriptor.items() if f.type == "bool"]
                yield (
                    (*place, "optional"),
                    0,
                    f"{tensor.optional!r} is not a bool of the descriptor; {_near(tensor.optional, flags)}",
                )
            if section == "inputs" and bool(tensor.optional) != (tensor.default is not None):
                yield (
                    place,
                    0,
                    f"{name!r} needs both `optional` and `default`, or neither: what is read in its absence",
                )
            for other in tensor.may_alias:
                there = spec.inputs.get(other)
                if section == "inputs" or there is None or (there.dims, there.dtype) != (tensor.dims, tensor.dtype):
                    yield (
                        (*place, "may_alias"),
                        0,
                        f"{name!r} can share memory with an input of its own dims and dtype only",
                    )
            if tensor.updates is not None:
                target = spec.inputs.get(tensor.updates)
                if (
                    section == "inputs"
                    or target is None
                    or (target.dims, target.dtype) != (tensor.dims, tensor.dtype)
                ):
                    yield (
                        (*place, "updates"),
                        0,
                        f"{name!r} can update an input of its own dims and dtype only",
                    )
                elif tensor.optional or target.optional or len(target.dtype) != 1:
                    yield (
                        (*place, "updates"),
                        0,
                        f"{tensor.updates!r} must be a required input of one dtype to be updated, by a required output",
                    )
                if [t.updates for t in spec.outputs.values()].count(tensor.updates) > 1:
                    yield (*place, "updates"), 0, f"{tensor.updates!r} is updated by two outputs; leave one"
            if section == "outputs" and tensor.default is not None:
                yield (*place, "default"), 0, "an output has no default"
    if spec.check_order and sorted(spec.check_order) != sorted(spec.arguments):
        yield ("check_order",), 0, f"must list every argument once: {', '.join(spec.arguments)}"


def _stored(tensor: TensorSpec) -> Iterator[tuple[str, str]]:
    if len(set(tensor.dtype)) != len(tensor.dtype):
        yield "dtype", f"lists one twice: {', '.join(tensor.dtype)}"
    if len({dtype.startswith("i") for dtype in tensor.dtype}) > 1:
        yield "dtype", f"mixes whole and real numbers: {', '.join(tensor.dtype)}"
    if tensor.default is not None:
        whole = tensor.dtype[0].startswith("i")
        if not (_fits("int" if whole else "float", tensor.default) and math.isfinite(tensor.default)):
            yield "default", f"{tensor.default!r} is not a finite {'whole ' if whole else ''}number; needs one"


def _program(spec: OpSpec) -> Iterator[Finding]:
    scope = scope_of(spec)
    try:
        lines = parse(spec.program, scope)
        kinds = kinds_of(spec, lines)
    except ProgramError as error:
        yield ("program",), error.number, str(error)
        return
    assigned = {line.name for line in lines}
    missing = [name for name in spec.outputs if name not in assigned]
    if missing:
        yield ("program",), 0, f"the program never assigns {', '.join(missing)}"
    for line in lines:
        try:
            for part in walk(line.expr):
                if isinstance(part, Reduce | Cast) and kind_of(part.arg, kinds) == "bool":
                    name = part.kind if isinstance(part, Reduce) else part.to
                    raise ProgramError(f"{name} takes numbers, got a bool; use where(condition, 1.0, 0.0)")
                kind_of(part, kinds)
            if not any(isinstance(part, Reduce) for part in walk(line.expr)):
                to_cuda(line.expr, kinds)
        except ProgramError as error:
            yield ("program",), line.number, str(error)
        if is_reserved(line.name):
            yield ("program",), line.number, f"{line.name!r} is a reserved word; choose another name"
        tensor = spec.outputs.get(line.name)
        if tensor is not None and kinds[line.name] == "bool":
            yield ("program",), line.number, f"{line.name!r} is a bool; use where(condition, a, b)"
        if tensor is not None and tensor.dtype[0].startswith("i") and kinds[line.name] == "float":
            yield ("program",), line.number, f"{line.name!r} is a float, its dtype {tensor.dtype[0]}; use whole numbers"
        for part in walk(line.expr):
            if isinstance(part, Query) and part.what == "present" and part.of not in spec.arguments:
                yield ("program",), line.number, f"{part.of!r} is no argument of its own, so it cannot be absent"
    yield from _collisions(spec, lines)


def _collisions(spec: OpSpec, lines: tuple[Line, ...]) -> Iterator[Finding]:
    derived = derived_names(spec, lines)
    where: dict[str, tuple[Place, int]] = {line.name: (("program",), line.number) for line in lines}
    for section in ("descriptor", "inputs", "outputs"):
        where |= {name: ((section, name), 0) for name in getattr(spec, section)}
    for name, (place, below) in where.items():
        of = derived.get(name)
        flag = name in spec.descriptor and name.startswith("has_")  # a macro's name, which a field does not become
        if of is not None and not flag:
            yield place, below, f"{name!r} is what generated code calls a part of {of!r}; choose another name"
    if of := derived.get(spec.op):
        yield ("op",), 0, f"{spec.op!r} is what generated code calls a part of {of!r}; choose another name"


def _oracle(spec: OpSpec) -> Iterator[Finding]:
    if (spec.reference is None) == (spec.gradient is None):
        yield (
            ("op",),
            0,
            "an op needs either a `reference` or a `gradient`: the oracle its kernels are tested against",
        )
    if spec.reference is not None:
        try:
            assigned = {line.name for line in parse(spec.reference, scope_of(spec))}
        except ProgramError as error:
            yield ("reference",), error.number, str(error)
            return
        missing = [name for name in spec.outputs if name not in assigned]
        if missing:
            yield ("reference",), 0, f"the reference never assigns {', '.join(missing)}"
    if spec.gradient is not None:
        for section, names, known in (
            ("cotangents", spec.gradient.cotangents, spec.inputs),
            ("wrt", spec.gradient.wrt, spec.outputs),
            ("saved", spec.gradient.saved, spec.inputs),
        ):
            for name in names:
                if name not in known:
                    yield ("gradient", section), 0, f"unknown tensor {name!r}; {_near(name, known)}"
        for name in spec.outputs:
            if name not in spec.gradient.wrt:
                yield (
                    ("gradient", "wrt"),
                    0,
                    f"{name!r} is not there: every output of a gradient differentiates an input",
                )


def _promises(spec: OpSpec) -> Iterator[Finding]:
    for name in spec.reproducibility:
        if name not in spec.outputs:
            yield ("reproducibility", name), 0, f"unknown output {name!r}; {_near(name, spec.outputs)}"
    for name in spec.outputs:
        if name not in spec.reproducibility:
            yield (
                ("reproducibility",),
                0,
                f"output {name!r} is not there: list what is promised of its bits, or []",
            )
    yield from _contradictions(spec)
    for dtype in spec.precision.bound:
        if dtype not in spec.dtypes:
            yield (
                ("precision", "bound", dtype),
                0,
                f"{dtype!r} is not a dtype of this op; {_near(dtype, spec.dtypes)}",
            )


def _arch(spec: OpSpec) -> Iterator[Finding]:
    for arch, need in spec.arch.items():
        if (need.shared_bytes or 0) > (limit := LIMITS[arch].shared_bytes):
            place = ("arch", arch, "shared_bytes")
            yield place, 0, f"{arch} has {limit} bytes of shared memory a block, got {need.shared_bytes}"
        if need.needs:
            yield ("arch", arch, "needs"), 0, "the row family's kernels use no tma, wgmma or cluster; leave it out"
        if arch.endswith("a"):
            yield ("arch", arch), 0, "the row family's kernels run on every architecture from one on; leave out the 'a'"
    if len(spec.arch) > 1:
        yield ("arch",), 0, "the row family's kernels are the same for every architecture; name the least one"


def _contradictions(spec: OpSpec) -> Iterator[Finding]:
    """Promises that cannot be kept, whatever the kernel."""
    rows = {name for name, dim in spec.dims.items() if dim.axes == "rest"}
    lines = {line.name: line for line in parse(spec.program, scope_of(spec))}
    for name, output in spec.outputs.items():
        rungs, place = spec.reproducibility.get(name, ()), ("reproducibility", name)
        if "batch_invariant" in rungs and not rows & set(output.dims):
            yield place, 0, f"{name!r} has no {min(rows)}: it depends on how many there are; drop batch_invariant"
        if "bit_stable_across_arch" not in rungs:
            continue
        if spec.precision.contraction or spec.precision.subnormals == "flush":
            yield place, 0, "contraction and flushed subnormals differ between machines; drop bit_stable_across_arch"
        if called := sorted(_library_functions(name, lines)):
            yield place, 0, f"{', '.join(called)} differ between machines; drop bit_stable_across_arch"


def _library_functions(name: str, lines: dict[str, Line]) -> set[str]:
    """The functions whose last bits are the library's that `name` is computed with."""
    found: set[str] = set()
    pending, seen = [name], set()
    while pending:
        if (line := lines.get(pending.pop())) is None or line.name in seen:
            continue
        seen.add(line.name)
        pending += reads(line.expr)
        found |= {e.op for e in walk(line.expr) if isinstance(e, Call) and OPS[e.op].rounding > 1}
    return found


def _cases(spec: OpSpec) -> Iterator[Finding]:
    sections = [(("tests", "defaults"), [spec.tests.defaults]), (("tests", "cases"), spec.tests.cases)]
    sections += [(("bench", "cases"), spec.bench.cases)]
    known = (*spec.descriptor, "dtype")
    for place, cases in sections:
        for i, case in enumerate(cases):
            for name, value in case.items():
                where = (*place, name) if place[1] == "defaults" else (*place, i, name)
                if name not in known:
                    yield where, 0, f"unknown field {name!r}; {_near(name, known)}"
                elif name != "dtype" and not _fits(spec.descriptor[name].type, value):
                    yield where, 0, f"{name!r} must be of type {spec.descriptor[name].type}, got {value!r}"
    for name, (low, high) in spec.tests.ranges.items():
        if name not in spec.inputs:
            yield ("tests", "ranges", name), 0, f"unknown input {name!r}; {_near(name, spec.inputs)}"
        elif not -math.inf < low < high < math.inf:
            yield ("tests", "ranges", name), 0, f"a range goes from low to high, both finite, got [{low}, {high}]"
    given = set(spec.tests.defaults)
    for i, case in enumerate(spec.tests.cases):
        missing = [
            n for n, f in spec.descriptor.items() if n not in case and n not in given and f.default is None
        ]
        if case.get("dtype", spec.dtypes[0]) not in spec.dtypes:
            listed = ", ".join(spec.dtypes)
            yield ("tests", "cases", i, "dtype"), 0, f"{case['dtype']!r} is not a dtype of this op; known are {listed}"
        if missing:
            yield ("tests", "cases", i), 0, f"gives no {', '.join(missing)}, and neither do the defaults"


def _fits(kind: str, value: object) -> bool:
    match kind:
        case "shape":
            return isinstance(value, list) and all(type(n) is int for n in value)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -(2**63) <= value < 2**63
    return type(value) in (int, float)


RULES: tuple[Rule, ...] = (
    *(_names, _texts, _fields, _dims, _conditions, _tensors),
    *(_program, _oracle, _promises, _arch, _cases),
)
