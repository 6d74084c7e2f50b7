"""Rules of the families whose math is a program: its names and types, and the oracle beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...program import Line, ProgramError, kind_of, parse
from ...program.tree import Call, Cast, Const, Expr, Name, Query, Read, Reduce, children, walk
from ..family import family_of
from ..names import is_reserved_in_programs
from ..scope import kinds_of, scope_of
from ..spec import ProgramSpec
from .finding import Finding


def program(spec: ProgramSpec) -> Iterator[Finding]:
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
                if isinstance(part, Cast) and kind_of(part.arg, kinds) == "bool":
                    raise ProgramError(f"{part.to} takes numbers, got a bool; use where(condition, 1.0, 0.0)")
                kind_of(part, kinds)
        except ProgramError as error:
            yield ("program",), line.number, str(error)
        if is_reserved_in_programs(line.name):
            yield ("program",), line.number, f"{line.name!r} is a reserved word; choose another name"
        tensor = spec.outputs.get(line.name)
        if tensor is not None and (wrong := _misfit(spec.sort_of(tensor), tensor.dtype[0], line, kinds)):
            yield ("program",), line.number, wrong
        for part in walk(line.expr):
            if isinstance(part, Query) and part.what == "present" and part.of not in spec.arguments:
                yield ("program",), line.number, f"{part.of!r} is no argument of its own, so it cannot be absent"


def _misfit(sort: str, dtype: str, line: Line, kinds: Mapping[str, str]) -> str:
    """Why a line's value cannot be stored as numbers of a sort, or ""."""
    match kinds[line.name], sort:
        case "bool", "float" | "int":
            return f"{line.name!r} is a bool; use where(condition, a, b), or dtype: bool"
        case "int" | "float" as given, "bool":
            return f"{line.name!r} is a {given}, and its dtype {dtype} takes bools only; write a comparison"
        case "float", "int":
            what = f"{line.name!r} is a float because of {_first_float(line.expr, kinds)!r}"
            return f"{what}, and its dtype {dtype} takes ints only"
    return ""


def _first_float(expr: Expr, kinds: Mapping[str, str]) -> str:
    """What makes `expr` a float: its first part that is one whatever its own parts are."""
    while not (isinstance(expr, Reduce) and expr.kind == "mean"):  # of ints too
        floats = [part for part in children(expr) if kind_of(part, kinds) == "float"]
        if not floats:
            break
        expr = floats[0]
    match expr:
        case Const(value=value):
            return str(value)
        case Name(id=name) | Query(what=name) | Call(op=name) | Reduce(kind=name) | Cast(to=name) | Read(tensor=name):
            return name


def promises(spec: ProgramSpec) -> Iterator[Finding]:
    """What outputs promise, kernels can keep; raises ProgramError for what cannot be scheduled."""
    for name, rung, text in family_of(spec).denied(spec):
        if rung in spec.reproducibility.get(name, ()):
            yield ("reproducibility", name), 0, text


def oracle(spec: ProgramSpec) -> Iterator[Finding]:
    if spec.reference is not None and spec.gradient is not None:
        text = "a gradient's oracle is the derivative of its forward's reference; drop this one"
        yield ("reference",), 0, text
    if spec.reference is not None:
        try:
            assigned = {line.name for line in parse(spec.reference, scope_of(spec))}
        except ProgramError as error:
            yield ("reference",), error.number, str(error)
            return
        missing = [name for name in spec.outputs if name not in assigned]
        if missing:
            yield ("reference",), 0, f"the reference never assigns {', '.join(missing)}"
