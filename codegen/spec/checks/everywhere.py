"""Rules for the specs of every family."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from baracuda.runtime.devices.limits import shared_bytes

from ..names import is_reserved, is_reserved_category, is_reserved_in_programs, is_reserved_op
from ..parts import FieldSpec, ReadTensor, TensorSpec
from ..spec import OpSpec
from ..types import Place, sort_of
from .finding import Finding, expression, fields_of, fits, meant

# Text that would end the comment or the docstring that it is printed into.
_ENDS_ITS_PLACE = ('"""', "\\", "??/")
_PROSE = ("doc", "formula", "source")


def names(spec: OpSpec) -> Iterator[Finding]:
    """Names are not reserved, and each is given once."""
    reserved = is_reserved if spec.by_hand else is_reserved_in_programs
    if is_reserved_op(spec.op):
        yield ("op",), 0, _taken(spec.op)
    if is_reserved_category(spec.category):
        yield ("category",), 0, _taken(spec.category)
    section_of: dict[str, str] = {}
    for section in ("descriptor", "dims", "inputs", "outputs", "workspace"):
        for name in getattr(spec, section, ()):
            if reserved(name):
                yield (section, name), 0, _taken(name)
            elif name in section_of:
                yield (section, name), 0, f"{name!r} is already a name of {section_of[name]}; choose another name"
            section_of[name] = section
    for name, output in _made_of_types(spec).items():
        if name in section_of:
            text = f"{name!r} is how functions call the type of {output!r}; choose another name"
            yield (section_of[name], name), 0, text
    if not spec.outputs:
        yield ("outputs",), 0, "an op needs at least one output"


def _taken(name: str) -> str:
    return f"{name!r} is a reserved word; choose another name"


def _made_of_types(spec: OpSpec) -> dict[str, str]:
    """Arguments of the op's function that choose an output's type."""
    return {f"{name}_dtype": name for name, tensor in spec.outputs.items() if len(tensor.dtype) > 1}


def texts(spec: OpSpec) -> Iterator[Finding]:
    for place, text in _texts(spec, ()):
        for number, line in enumerate(text.splitlines(), 1):
            if bad := next((b for b in _ENDS_ITS_PLACE if b in line), None):
                below = number if place == ("formula",) else 0
                yield place, below, f"{bad!r} cannot stand in a comment of generated code; write it in words"


def _texts(part: object, place: Place) -> Iterator[tuple[Place, str]]:
    """Every text for people, whichever key has one."""
    match part:
        case BaseModel():
            yield from (((*place, key), text) for key in _PROSE if isinstance(text := getattr(part, key, None), str))
            for key, value in part:
                yield from _texts(value, (*place, key))
        case Mapping():
            for key, value in part.items():
                yield from _texts(value, (*place, key))


def fields(spec: OpSpec) -> Iterator[Finding]:
    for name, field in spec.descriptor.items():
        other = spec.descriptor.get(field.same_as) if field.same_as else None
        if field.same_as and (other is None or other.type != field.type or other.same_as):
            place = ("descriptor", name, "same_as")
            hint = meant(field.same_as, spec.descriptor)
            yield place, 0, f"{field.same_as!r} is no field of type {field.type}; {hint}"
        if field.same_as and field.default is not None:
            yield ("descriptor", name, "default"), 0, "a field takes another's value or has a default, not both"
        if field.default is not None and not _is_default(field):
            yield ("descriptor", name, "default"), 0, f"{name!r} must be of type {field.type}, got {field.default!r}"
    if len(set(spec.dtypes)) != len(spec.dtypes):
        yield ("dtypes",), 0, f"lists one twice: {', '.join(spec.dtypes)}"


def _is_default(field: FieldSpec) -> bool:
    return fits(field.type, field.default) and (math.isfinite(field.default or 0) or not field.finite)


def conditions(spec: OpSpec) -> Iterator[Finding]:
    fields = fields_of(spec)
    for i, requirement in enumerate(spec.require):
        yield from expression(requirement.that, fields, ("require", i, "that"), "bool")


def tensors(spec: OpSpec) -> Iterator[Finding]:
    for section, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for name, tensor in tensors.items():
            place = (section, name)
            for key, message in _storage_errors(tensor, spec.dtypes):
                yield (*place, key), 0, message
            field = spec.descriptor.get(tensor.optional) if tensor.optional else None
            if tensor.optional and (field is None or field.type != "bool"):
                flags = [n for n, f in spec.descriptor.items() if f.type == "bool"]
                hint = meant(tensor.optional, flags)
                if not hint.startswith("did"):
                    hint = f"write has_{name}, which need not be declared, or declare it"
                yield (*place, "optional"), 0, f"{tensor.optional!r} is not a bool of the descriptor; {hint}"
            if section == "inputs" and bool(tensor.optional) != (tensor.default is not None):
                yield (
                    place,
                    0,
                    f"{name!r} needs both `optional` and `default`, or neither: what is read in its absence",
                )
            for other in tensor.may_alias:
                aliased = spec.inputs.get(other)
                if section == "inputs" or aliased is None or _storage(aliased) != _storage(tensor):
                    yield (
                        (*place, "may_alias"),
                        0,
                        f"{name!r} can share memory with an input of its own dims and dtype only",
                    )
            if tensor.updates is not None:
                target = spec.inputs.get(tensor.updates)
                if section == "inputs" or target is None or _storage(target) != _storage(tensor):
                    yield ((*place, "updates"), 0, f"{name!r} can update an input of its own dims and dtype only")
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


def _storage(tensor: TensorSpec) -> tuple[object, ...]:
    """What two tensors that share memory have in common."""
    return getattr(tensor, "dims", None), getattr(tensor, "shape", None), tensor.dtype


def _storage_errors(tensor: TensorSpec, dtypes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if len(set(tensor.dtype)) != len(tensor.dtype):
        yield "dtype", f"lists one twice: {', '.join(tensor.dtype)}"
    sorts = {sort_of(dtype) for dtype in tensor.dtype if dtype != "T"}
    sorts |= {sort_of(dtype) for dtype in dtypes} if "T" in tensor.dtype else set()
    if len(tensor.dtype) > 1 and len(sorts) > 1:
        yield "dtype", f"mixes whole numbers, real numbers or bools: {', '.join(tensor.dtype)}"
    if tensor.default is not None:
        is_whole = sort_of(tensor.dtype[0]) != "float"
        if not (fits("int" if is_whole else "float", tensor.default) and math.isfinite(tensor.default)):
            yield "default", f"{tensor.default!r} is not a finite {'whole ' if is_whole else ''}number; needs one"


def outside(spec: OpSpec, tensor_place: tuple[str, str], tensor: ReadTensor) -> Iterator[Finding]:
    """The value outside of an input is one of its elements', or a field of that kind."""
    (section, name), value = tensor_place, tensor.outside
    place, sorts = (section, name, "outside"), spec.sorts_of(tensor)
    if value is None:
        return
    if section == "outputs":
        yield place, 0, "an output has no `outside`: only inputs are read at computed places"
    elif isinstance(value, str) and len(sorts) > 1:
        yield place, 0, f"{name!r} may hold {' and '.join(f'{of}s' for of in sorts)}; needs a number that each is, as 0"
    elif isinstance(value, str):
        wanted = {"complex": "float"}.get(sorts[0], sorts[0])
        fields = [field for field, of in spec.descriptor.items() if of.type == wanted]
        if value not in fields:
            yield place, 0, f"{value!r} is no {wanted} of the descriptor; {meant(value, fields)}"
    elif "bool" in sorts and value not in (0, 1):
        yield place, 0, f"needs true or false, as {name!r} holds bools; got {value}"
    elif "int" in sorts and not fits("int", value if isinstance(value, float) else int(value)):
        yield place, 0, f"needs an int of 64 bits, as {name!r} holds ints; got {value}"
    elif isinstance(value, bool) and sorts != ["bool"]:
        yield place, 0, f"needs a number, as {name!r} holds {sorts[0]}s; got {str(value).lower()}"


def promises(spec: OpSpec) -> Iterator[Finding]:
    for name in spec.reproducibility:
        if name not in spec.outputs:
            yield ("reproducibility", name), 0, f"unknown output {name!r}; {meant(name, spec.outputs)}"
    for place, bound in spec.bounds.items():
        for dtype in bound:
            if dtype not in spec.dtypes:
                yield (*place, dtype), 0, f"{dtype!r} is not a dtype of this op; {meant(dtype, spec.dtypes)}"
    for name, tensor in spec.inputs.items():
        if tensor.bound:
            yield ("inputs", name, "bound"), 0, "an input has no error; a bound is that of an output"


def arch(spec: OpSpec) -> Iterator[Finding]:
    for arch, need in spec.arch.items():
        if (need.shared_bytes or 0) > (limit := shared_bytes(arch)):
            place = ("arch", arch, "shared_bytes")
            yield place, 0, f"{arch} has {limit} bytes of shared memory a block, got {need.shared_bytes}"


def bench(spec: OpSpec) -> Iterator[Finding]:
    """What to measure: dtypes and architectures that there are kernels for, and flops that can be computed."""
    references: list[tuple[Place, object, tuple[str, ...]]]
    references = [(("bench", "dtypes"), dtype, spec.dtypes) for dtype in spec.bench.dtypes]
    for i, case in enumerate(spec.bench.cases):
        references += [(("bench", "cases", i, "dtype"), case["dtype"], spec.dtypes)] if "dtype" in case else []
        references += [(("bench", "cases", i, "arch"), case["arch"], tuple(spec.arch))] if "arch" in case else []
    for place, name, allowed in references:
        if name not in allowed:
            yield place, 0, f"{name!r} is none of this op's; {meant(str(name), allowed)}"
    if spec.bench.flops is not None:
        yield from expression(spec.bench.flops, fields_of(spec), ("bench", "flops"), "int", "float")


def cases(spec: OpSpec) -> Iterator[Finding]:
    sections = [(("tests", "defaults"), [spec.tests.defaults]), (("tests", "cases"), spec.tests.cases)]
    sections += [(("bench", "cases"), spec.bench.cases)]
    keys = (*spec.descriptor, "dtype")
    for place, cases in sections:
        for i, case in enumerate(cases):
            for name, value in case.items():
                key_path = (*place, name) if place[1] == "defaults" else (*place, i, name)
                if place[0] == "bench" and name == "arch":
                    continue
                if name not in keys:
                    yield key_path, 0, f"unknown field {name!r}; {meant(name, keys)}"
                elif name != "dtype" and not fits(spec.descriptor[name].type, value):
                    yield key_path, 0, f"{name!r} must be of type {spec.descriptor[name].type}, got {value!r}"
                elif name == "kind" and value not in spec.by_kind:
                    yield key_path, 0, f"unknown kind {value!r}; {meant(str(value), spec.by_kind)}"
    ranges = [(section, *of) for section in ("tests", "bench") for of in getattr(spec, section).ranges.items()]
    for section, name, (low, high) in ranges:
        if name not in spec.inputs:
            yield (section, "ranges", name), 0, f"unknown input {name!r}; {meant(name, spec.inputs)}"
        elif not -math.inf < low <= high < math.inf or (low == high and section == "tests"):
            yield (section, "ranges", name), 0, f"a range goes from low to high, both finite, got [{low}, {high}]"
    for name in spec.bench.ascending:
        if name not in spec.inputs:
            yield ("bench", "ascending"), 0, f"unknown input {name!r}; {meant(name, spec.inputs)}"
        elif name not in spec.bench.ranges:
            yield ("bench", "ascending"), 0, f"{name!r} has no range to ascend in; give it one in bench.ranges"
    fields = [(n, f) for n, f in spec.descriptor.items() if f.type != "bool"]  # which are true
    needed = [n for n, f in fields if f.default is None and f.same_as is None]
    for section, cases in (("tests", spec.tests.cases), ("bench", spec.bench.cases)):
        for i, case in enumerate(cases):
            turns = {"kind"} if section == "tests" else ()  # kinds that cases do not say are given in turn
            missing = [n for n in needed if n not in case and n not in spec.tests.defaults and n not in turns]
            if case.get("dtype", spec.dtypes[0]) not in spec.dtypes:
                listed = f"known are {', '.join(spec.dtypes)}"
                yield (section, "cases", i, "dtype"), 0, f"{case['dtype']!r} is not a dtype of this op; {listed}"
            if missing:
                yield (section, "cases", i), 0, f"gives no {', '.join(missing)}, and neither do the defaults"
