"""Splits a program over an index space into values of cells, terms of sums, and values of sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..program import Expr, Line, Name, ProgramError, Reduce, Scope, parse
from ..program.tree import Call, Cast, reads, varies
from .spec import MapSpec

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """`lines` with every sum on its own line, `late` those that need a sum, `dims` what each varies along."""

    lines: tuple[Line, ...]
    summed: tuple[str, ...]
    sums: frozenset[str]
    late: frozenset[str]
    dims: dict[str, frozenset[str]]

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)

    def needed(self, ends: Iterable[str], stop: frozenset[str] = frozenset()) -> frozenset[str]:
        """The names that `ends` read, directly or not; stops at those in `stop`."""
        names: set[str] = set()
        pending = list(ends)
        while pending:
            name = pending.pop()
            if name in names:
                continue
            names.add(name)
            line = self.line(name)
            if line is not None and name not in stop:
                pending += reads(line.expr)
        return frozenset(names)


def groups_of(spec: MapSpec) -> Groups:
    """The dims in row-major order; those in products are interleaved axis by axis."""
    products = {g for t in (*spec.inputs.values(), *spec.outputs.values()) for g in t.groups if len(g) > 1}
    group_of = {dim: group for group in products for dim in group}
    return tuple(dict.fromkeys(group_of.get(dim, (dim,)) for dim in spec.dims))


def scope_of_map(spec: MapSpec) -> Scope:
    """The names of the program, with the dims of each product."""
    values = {name: t.over for name, t in spec.inputs.items()}
    values |= {name: frozenset() for name, f in spec.descriptor.items() if f.type != "shape"}
    optional = frozenset(n for n, t in spec.tensors.items() if t.optional)
    return Scope(tuple(spec.dims), values, optional, spec.functions)


def split(spec: MapSpec) -> Parts:
    """The parts of the program; raises ProgramError for what the family cannot schedule."""
    scope = scope_of_map(spec)
    lines = _lifted(parse(spec.program, scope), spec)
    dims = dict(scope.values)
    sums: set[str] = set()
    late: set[str] = set()
    summed: tuple[str, ...] = ()
    for line in lines:
        dims[line.name] = varies(line.expr, dims)
        if isinstance(line.expr, Reduce):
            summed = _check_sum(line, line.expr, spec, summed)
            if late & reads(line.expr):
                raise ProgramError(f"{line.name!r} is a sum of what needs a sum itself; sums come last", line.number)
            sums.add(line.name)
            dims[line.name] = frozenset(spec.dims) - frozenset(summed)
        if line.name in sums or late & reads(line.expr):
            late.add(line.name)
    parts = Parts(lines, summed, frozenset(sums), frozenset(late), dims)
    for line in lines:
        if line.name in late and (back := parts.dims[line.name] & set(summed)):
            raise ProgramError(
                f"{line.name!r} varies along {', '.join(sorted(back))} and needs a sum over it; sums come last",
                line.number,
            )
    for name in spec.outputs:
        _check_output(name, spec, parts)
    return parts


def copies_of(spec: MapSpec, parts: Parts) -> dict[str, str]:
    """Outputs that are an input unchanged: elements are moved, never converted."""
    copies = {}
    for name, output in spec.outputs.items():
        line = parts.line(name)
        source = line.expr.id if line is not None and isinstance(line.expr, Name) else ""
        tensor = spec.inputs.get(source)
        if tensor is not None and not tensor.optional and tensor.dtype == output.dtype == ("T",):
            copies[name] = source
    return copies


def _lifted(lines: tuple[Line, ...], spec: MapSpec) -> tuple[Line, ...]:
    taken = {*spec.tensors, *spec.descriptor, *(line.name for line in lines)}
    lifted: list[Line] = []

    def lift(expr: Expr, line: Line) -> Expr:
        match expr:
            case Call(op=op, args=args):
                return Call(op, tuple(lift(a, line) for a in args))
            case Cast(to=to, arg=arg):
                return Cast(to, lift(arg, line))
            case Reduce(kind=kind, arg=arg, dims=dims):
                name = f"{line.name}_{kind}"
                while name in taken:
                    name += "_"
                taken.add(name)
                lifted.append(Line(name, Reduce(kind, lift(arg, line), dims), line.number))
                return Name(name)
        return expr

    for line in lines:
        expr = line.expr
        if isinstance(expr, Reduce):
            lifted.append(Line(line.name, Reduce(expr.kind, lift(expr.arg, line), expr.dims), line.number))
        else:
            lifted.append(Line(line.name, lift(expr, line), line.number))
    return tuple(lifted)


def _check_sum(line: Line, reduce: Reduce, spec: MapSpec, before: tuple[str, ...]) -> tuple[str, ...]:
    over = tuple(dim for dim in spec.dims if dim in reduce.dims)
    if reduce.kind != "sum":
        raise ProgramError(f"{line.name!r} is a {reduce.kind}; the map family reduces by sum only", line.number)
    if len(set(reduce.dims)) != len(reduce.dims):
        raise ProgramError(f"{line.name!r} sums over a dim twice: {', '.join(reduce.dims)}", line.number)
    if before and before != over:
        raise ProgramError(
            f"{line.name!r} sums over {', '.join(over)}, an earlier line over {', '.join(before)}; "
            "all sums of an op run over the same dims",
            line.number,
        )
    return over


def _check_output(name: str, spec: MapSpec, parts: Parts) -> None:
    line, listed = parts.line(name), spec.outputs[name].over
    assert line is not None
    extra = parts.dims[name] - listed
    if extra:
        text = f"{name!r} varies along {', '.join(sorted(extra))}, which its dims do not list"
        raise ProgramError(text, line.number)
    expected = frozenset(spec.dims) - frozenset(parts.summed if name in parts.late else ())
    if listed != expected:
        kind = "made of sums" if name in parts.late else "a value of each cell"
        dims = ", ".join(dim for dim in spec.dims if dim in expected) or "none"
        raise ProgramError(f"{name!r} is {kind}, so its dims must be {dims}", line.number)
