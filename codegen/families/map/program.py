"""Splits a program over an index space into values of cells, what is reduced, and values made of that.

What one walk over the cells can do is one pass; `map_passes` cuts other programs into several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...program import Const, Expr, Line, Name, ProgramError, Reduce, Scope, parse
from ...program.tree import Axes, Call, Cast, Query, Read, place_of, reads, unused, varies, walk
from ...spec.once import once
from ...spec.scope import scope_of
from .spec import MapSpec

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """`lines` with every reduction and every read at a computed place on its own line, `late` what needs a reduction.

    `dims` are what each varies along, `cells` those of the index space: along the others nothing varies, they only give
    the extents of inputs that are read at computed places.
    """

    lines: tuple[Line, ...]
    cells: tuple[str, ...]
    summed: tuple[str, ...]
    sums: frozenset[str]
    late: frozenset[str]
    dims: dict[str, frozenset[str]]

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)

    @property
    def sum_lines(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.name in self.sums)

    @property
    def reads(self) -> dict[str, Read]:
        """The lines that read an input at computed places."""
        return {line.name: line.expr for line in self.lines if isinstance(line.expr, Read)}

    def placed(self, tensor: str) -> tuple[str, ...]:
        """The dims of an input along which some line computes the place."""
        of = [read for read in self.reads.values() if read.tensor == tensor]
        return tuple(d for read in of[:1] for d in read.dims if any(d in other.computed for other in of))

    def computed(self, line: Line) -> tuple[Expr, ...]:
        """What a kernel computes for a line: of a read, the places along the dims that have one."""
        if not isinstance(line.expr, Read):
            return (line.expr,)
        places, dims = dict(zip(line.expr.dims, line.expr.places, strict=True)), self.placed(line.expr.tensor)
        return tuple(places[dim] for dim in dims)

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


def queries_of(parts: Parts) -> frozenset[Query]:
    """What a kernel asks of the space."""
    exprs = [expr for line in parts.lines for expr in (*parts.computed(line), place_of(line.expr)) if expr is not None]
    return frozenset(e for expr in exprs for e in walk(expr) if isinstance(e, Query))


def groups_of(spec: MapSpec, parts: Parts) -> Groups:
    """The dims of cells in row-major order; those in products are interleaved axis by axis.

    First come dims along which no tensor has elements of its own: neighbouring cells are neighbours in some array.
    """
    own = {dim for t in spec.tensors.values() for dim in t.over}
    cells = sorted(parts.cells, key=lambda dim: dim in own)
    products = {g for t in (*spec.inputs.values(), *spec.outputs.values()) for g in t.groups if len(g) > 1}
    group_of = {dim: group for group in products for dim in group}
    return tuple(dict.fromkeys(group_of.get(dim, (dim,)) for dim in cells))


@once
def split(spec: MapSpec) -> Parts:
    """The parts of the program; raises ProgramError for what no passes compute. `summed` are those of any reduction."""
    over = tuple((name, tensor.over) for name, tensor in spec.outputs.items())
    listed = frozenset(dim for tensor in spec.tensors.values() for dim in tensor.over)
    return _split(spec.program, scope_of(spec), over, listed, frozenset((*spec.tensors, *spec.descriptor)))


@lru_cache(maxsize=512)  # checks, conditions and test cases of a spec ask for its parts many times
def _split(
    program: str,
    scope: Scope,
    over: tuple[tuple[str, frozenset[str]], ...],
    listed: frozenset[str],
    taken: frozenset[str],
) -> Parts:
    """The same of what `split` reads of a spec: its outputs' dims, those that tensors list, and the names it gives."""
    lines, outputs = parse(program, scope), dict(over)
    cells, lines = _cells(lines, scope, outputs, listed), _lifted(lines, taken, scope)
    for line in lines:
        if isinstance(line.expr, Reduce) and len({*line.expr.dims}) != len(line.expr.dims):
            raise ProgramError(f"{line.name!r} reduces over a dim twice: {', '.join(line.expr.dims)}", line.number)
    parts = parts_of(lines, cells, scope.values)
    for line in lines:
        if line.name in outputs and (extra := parts.dims[line.name] - outputs[line.name]):
            text = f"{line.name!r} varies along {', '.join(sorted(extra))}, which its dims do not list"
            raise ProgramError(text, line.number)
    return parts


def parts_of(lines: tuple[Line, ...], cells: tuple[str, ...], values: Mapping[str, frozenset[str]]) -> Parts:
    """What `lines` are; `values` has the dims of what they may read. What is reduced varies along all other cells."""
    dims, sums, late, summed = dict(values), set[str](), set[str](), set[str]()
    for line in lines:
        dims[line.name] = varies(line.expr, dims)
        if isinstance(line.expr, Reduce):
            summed |= {*line.expr.dims}
            sums.add(line.name)
        if line.name in sums or late & reads(line.expr):
            late.add(line.name)
    order = tuple(dim for dim in cells if dim in summed)
    return Parts(lines, cells, order, frozenset(sums), frozenset(late), dims)


def is_one_pass(spec: MapSpec, parts: Parts) -> bool:
    """Whether one walk over the cells computes all: reductions over the same dims come last."""
    lines = {line.name: line.expr for line in parts.lines}
    for name, expr in lines.items():
        if isinstance(expr, Reduce) and (parts.late & reads(expr) or {*expr.dims} != {*parts.summed}):
            return False
        if isinstance(expr, Read) and parts.late & reads(expr):
            return False
        if name in parts.late and parts.dims[name] & {*parts.summed}:
            return False
    cells = frozenset(parts.cells)
    return all(t.over == cells - {*(parts.summed if n in parts.late else ())} for n, t in spec.outputs.items())


def _placed(lines: tuple[Line, ...], axes: Mapping[str, Axes]) -> dict[str, Expr]:
    """The inputs that some line reads at computed places, and how another reads them as they are."""
    parts = (part for line in lines for part in walk(line.expr))
    names = {part.tensor for part in parts if isinstance(part, Read) and part.computed}
    own = {name: tuple(Query("index", dim) for dim in axes[name].dims) for name in names}
    return {name: Read(name, axes[name].dims, own[name], axes[name].outside or Const(0.0)) for name in own}


def _cells(
    lines: tuple[Line, ...], scope: Scope, outputs: Mapping[str, frozenset[str]], listed: frozenset[str]
) -> tuple[str, ...]:
    """The dims without those that only give the extents of inputs that are read at computed places, or nothing."""
    dims, used = dict(scope.values), {dim for over in outputs.values() for dim in over}
    beside: set[str] = set()
    for line in lines:
        dims[line.name] = varies(line.expr, dims)
        used |= dims[line.name]
        for part in walk(line.expr):
            used |= {*part.dims} if isinstance(part, Reduce) else set()
            beside |= {*part.dims} if isinstance(part, Read) else set()
    return tuple(dim for dim in scope.dims if dim in used or dim in listed - beside)


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


def _lifted(lines: tuple[Line, ...], names: frozenset[str], scope: Scope) -> tuple[Line, ...]:
    taken = {*names, *(line.name for line in lines)}
    lifted: list[Line] = []
    found: dict[Expr, Name] = {}
    placed = _placed(lines, scope.axes)

    def lift(expr: Expr, line: Line) -> Expr:
        match expr:
            case Name(id=name) if name in placed:
                return lift(placed[name], line)
            case Read(tensor=tensor) if tensor not in placed:
                return Name(tensor)
            case Read(tensor=tensor, dims=dims, places=places, outside=outside):
                read = Read(tensor, dims, tuple(lift(p, line) for p in places), outside)
                if read not in found:
                    name = unused(f"{tensor}_read", taken)
                    taken.add(name)
                    lifted.append(Line(name, read, line.number))
                    found[read] = Name(name)
                return found[read]
            case Call(op=op, args=args):
                return Call(op, tuple(lift(a, line) for a in args))
            case Cast(to=to, arg=arg):
                return Cast(to, lift(arg, line))
            case Reduce(kind="mean" | "var" as kind, arg=arg, dims=dims):
                sizes: Expr = Query("size", dims[0])
                for dim in dims[1:]:
                    sizes = Call("mul", (sizes, Query("size", dim)))
                of = Reduce("sum", arg, dims) if kind == "mean" else Reduce("spread", arg, dims)
                return Call("div", (lift(of, line), sizes))
            case Reduce(kind=kind, arg=arg, dims=dims):
                reduced = Reduce(kind, lift(arg, line), dims)
                if reduced not in found:
                    name = unused(f"{line.name}_{kind}", taken)
                    taken.add(name)
                    lifted.append(Line(name, reduced, line.number))
                    found[reduced] = Name(name)
                return found[reduced]
        return expr

    for line in lines:
        expr = line.expr
        if isinstance(expr, Reduce) and expr.kind not in ("mean", "var"):
            reduced = Reduce(expr.kind, lift(expr.arg, line), expr.dims)
            lifted.append(Line(line.name, found.get(reduced, reduced), line.number))
            found.setdefault(reduced, Name(line.name))
        else:
            lifted.append(Line(line.name, lift(expr, line), line.number))
    return tuple(lifted)
