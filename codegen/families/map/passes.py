"""Cuts a program over an index space into passes, each of which one walk over the cells computes.

A pass reduces over some dims, or stores values of cells only. What later passes read of its reductions it hands over
in arrays of its own. Each pass computes again what it needs of the inputs, so that nothing of every cell is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field

from ...program import Expr, Line, Name, Reduce
from ...program.tree import Call, Cast, Query, Read, mapped, reads, unused, varies
from ...spec.once import once
from ...spec.scope import kinds_of
from .program import Parts, is_one_pass, parts_of, split
from .spec import MapSpec, MapTensor

_HANDED = {"float": "acc", "int": "i64", "bool": "bool", "complex": "T"}


@dataclass(frozen=True, slots=True)
class Pass:
    """The tensors that a pass reads and writes, among them what is handed over, and its part of the program.

    `product` is what it multiplies, if it is a matrix product. Passes of the same `loop`, from 1, run one after the
    other for each chunk of a dim; those of loop 0 run once.
    """

    spec: MapSpec
    parts: Parts
    product: Hashable = None
    loop: int = 0


@once
def passes(spec: MapSpec, held: str = "held") -> tuple[Pass, ...]:
    """The passes of the program, in order; raises ProgramError for what none compute.

    Names of arrays that are handed over end in `held`.
    """
    parts = split(spec)
    if is_one_pass(spec, parts):
        return (Pass(spec, parts),)
    cut = tuple(Cut(spec, hoisted(parts), held).passes())
    return cut if len(cut) > 1 else (Pass(spec, cut[0].parts),)


def reduced_between(spec: MapSpec) -> frozenset[str]:
    """The dims of reductions that later passes read."""
    return frozenset(dim for of in passes(spec)[:-1] for dim in of.parts.summed)


@dataclass(slots=True)
class Walk:
    """One pass in the making: what it reduces over which cells, the outputs that it stores, and what else it makes."""

    cells: frozenset[str]
    summed: frozenset[str] = frozenset()
    sums: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    made: tuple[str, ...] = ()
    whole: bool = False  # whether it makes all of that at once, whatever comes in chunks

    @property
    def kept(self) -> frozenset[str]:
        return self.cells - self.summed


class Cut:
    """A program in the course of being cut."""

    def __init__(self, spec: MapSpec, parts: Parts, held: str) -> None:
        self.spec, self.parts, self.held = spec, parts, held
        self.kinds = kinds_of(spec, parts.lines)
        self.lines = {line.name: line for line in parts.lines}
        self.behind: dict[str, frozenset[str]] = {}  # the reductions that each line rests on, itself included
        self.places: dict[str, frozenset[str]] = {}  # those that it rests on by way of a place that is read
        for name, line in self.lines.items():
            inner, places = (
                frozenset[str]().union(*(of.get(n, frozenset()) for n in reads(line.expr)))
                for of in (self.behind, self.places)
            )
            self.behind[name] = inner | ({name} if name in parts.sums else frozenset())
            self.places[name] = places | (inner if isinstance(line.expr, Read) else frozenset())
        self.walks: list[Walk] = []

    def passes(self) -> Iterable[Pass]:
        pending = [line.name for line in self.parts.sum_lines]
        while pending:
            walk = self._next(pending)
            self.walks.append(walk)
            pending = [name for name in pending if name not in walk.sums]
        for name, output in self.spec.outputs.items():
            self._walk_for(name, output.over).outputs.append(name)
        self._arrange()
        handed: list[dict[str, str]] = [self._read_later(place) for place in range(len(self.walks))]
        for place, walk in enumerate(self.walks):
            yield self._pass(walk, {k: v for of in handed[:place] for k, v in of.items()}, handed[place])

    def _next(self, pending: list[str]) -> Walk:
        """Ready reductions over the same dims of the same cells; those that only end in outputs come last."""
        walks: dict[Hashable, Walk] = {}
        for name in pending:
            if self.behind[name].isdisjoint({*pending} - {name}):
                expr = self.lines[name].expr
                assert isinstance(expr, Reduce)
                summed = frozenset(expr.dims)
                cells = varies(expr.arg, self.parts.dims) | summed
                key = summed, cells, self._alone(name)
                walks.setdefault(key, Walk(cells, summed)).sums.append(name)
        return next((w for w in walks.values() if self._is_read_beyond(w)), next(iter(walks.values())))

    def _arrange(self) -> None:
        """Put the walks in order once all are known: they are already."""

    def _alone(self, name: str) -> str:
        """The name of a reduction that no other shares a pass with, or ""."""
        return ""

    def _stores(self, walk: Walk) -> bool:
        """Whether a walk also stores values of its cells that rest on none of its reductions."""
        return True

    def _is_read_beyond(self, walk: Walk) -> bool:
        """Whether anything rests on the walk's reductions that is not one value for each of them."""
        ends = [*self.parts.sums - {*walk.sums}, *self.spec.outputs]
        return any(self.behind[n] & {*walk.sums} and not self._follows(n, walk) for n in ends)

    def _follows(self, name: str, walk: Walk) -> bool:
        """Whether a walk can compute a line once it has its reductions."""
        before = next((place for place, w in enumerate(self.walks) if w is walk), len(self.walks))
        earlier = {n for w in self.walks[:before] for n in w.sums}
        late = bool(self.behind[name] & {*walk.sums}) and self.behind[name] <= {*walk.sums} | earlier
        own = name not in self.parts.sums - {*walk.sums} and self.places[name].isdisjoint(walk.sums)
        return late and own and self.parts.dims[name] <= walk.kept

    def _ends(self, name: str, walk: Walk) -> bool:
        """Whether a walk that an output follows may also store it."""
        return self._follows(name, walk)

    def _walk_for(self, name: str, over: frozenset[str]) -> Walk:
        """The pass that stores an output: the one whose reductions it follows, or the last of the same cells.

        The last, so that no other pass of these cells reads an input whose memory the output may be.
        """
        places = [place for place, walk in enumerate(self.walks) if self.behind[name] & {*walk.sums}]
        if places and over == self.walks[places[-1]].kept and self._ends(name, self.walks[places[-1]]):
            return self.walks[places[-1]]
        for walk in reversed(self.walks[places[-1] + 1 if places else 0 :]):
            if walk.cells == over and self._stores(walk):
                return walk
        self.walks.append(Walk(over))
        return self.walks[-1]

    def _read_later(self, place: int) -> dict[str, str]:
        """What later passes read of a pass, and the names of the arrays that hold it."""
        walk = self.walks[place]
        found = {name: name if self._is_kept(name, walk) else f"{name}_{self.held}" for name in walk.made}
        if not walk.sums:
            return found
        for later in self.walks[place + 1 :]:
            copied = [name for name in later.outputs if self._follows(name, walk)]
            found |= {name: f"{name}_{self.held}" for name in copied}
            pending = [*later.sums, *(name for name in later.outputs if name not in copied)]
            seen = set(pending)
            while pending:
                line = self.lines.get(pending.pop())
                for name in reads(line.expr) if line is not None else ():
                    if name in self.lines and self._follows(name, walk):
                        found[name] = name if self._is_kept(name, walk) else f"{name}_{self.held}"
                    elif name not in seen:
                        seen.add(name)
                        pending.append(name)
        return {name: found[name] for name in self.lines if name in found}

    def _is_kept(self, name: str, walk: Walk) -> bool:
        """Whether an output holds exactly what is handed over."""
        return name in walk.outputs and self._is_exact(name)

    def _is_exact(self, name: str) -> bool:
        """Whether an output has the type of what is handed over, and is there."""
        output = self.spec.outputs[name]
        return not output.optional and output.dtype == self._array(name).dtype

    def _pass(self, walk: Walk, held: dict[str, str], handed: dict[str, str]) -> Pass:
        spec, wanted = self.spec, self._needed([*walk.sums, *walk.outputs, *handed], frozenset(held))
        copied = {n: Name(held[n]) for n in walk.outputs if n in held}
        lines = [
            Line(n, copied.get(n) or _renamed(x.expr, held), x.number) for n, x in self.lines.items() if n in wanted
        ]
        computed = {e.tensor for e in (x.expr for x in lines) if isinstance(e, Read) and e.computed}
        lines = [Line(x.name, _as_is(x.expr, computed), x.number) for x in lines]
        arrays = {array: name for name, array in handed.items() if array != name}
        used = {name for line in lines for name in reads(line.expr)} | {*walk.sums, *walk.outputs}
        only = {n for n in arrays.values() if n not in used and isinstance(self.lines[n].expr, Cast)}
        stored = {line.name: line.expr for line in lines if line.name in only}
        lines = [line for line in lines if line.name not in only]
        lines += [Line(array, stored.get(name, Name(name))) for array, name in arrays.items()]
        read = {name for line in lines for name in reads(line.expr)}
        inputs = {n: t for n, t in spec.inputs.items() if n in read}
        inputs |= {array: self._array(name) for name, array in held.items() if array in read - {x.name for x in lines}}
        outputs = {n: spec.outputs[n] for n in walk.outputs} | {a: self._array(n) for a, n in arrays.items()}
        values = {**self.parts.dims, **{a: self.parts.dims[n] for n, a in held.items()}}
        parts = parts_of(tuple(lines), tuple(d for d in spec.dims if d in walk.cells), values)
        tensors = {"inputs": inputs, "outputs": outputs, "kinds": {}, "gradient": None, "check_order": ()}
        return Pass(spec.model_copy(update=tensors), parts)

    def _needed(self, ends: Iterable[str], given: frozenset[str]) -> frozenset[str]:
        names, pending = set[str](), [*ends]
        while pending:
            name = pending.pop()
            if name in self.lines and name not in names:
                names.add(name)
                pending += () if name in given else reads(self.lines[name].expr) - given
        return frozenset(names)

    def _array(self, name: str) -> MapTensor:
        """What holds a value for a later pass."""
        dims = tuple(dim for dim in self.spec.dims if dim in self.parts.dims[name])
        line, kind = self.lines[name], self.kinds[name]
        is_element = isinstance(line.expr, Cast) and line.expr.to == "T"
        dtype = ("T" if is_element else _HANDED[kind],)
        return MapTensor.model_construct(dims=dims, doc="", dtype=dtype)


def hoisted(parts: Parts, whole: Collection[str] = ()) -> Parts:
    """The same with a line of its own for what rests on reductions and varies less than the line that it is part of.

    Lines that are named in `whole` stay as they are.
    """
    lines, dims, late = list[Line](), dict(parts.dims), set(parts.late)

    def of(expr: Expr, line: Line, over: frozenset[str]) -> Expr:
        if isinstance(expr, Call | Cast) and late & reads(expr) and varies(expr, dims) < over:
            name = unused(f"{line.name}_part", dims)
            lines.append(Line(name, expr, line.number))
            dims[name] = varies(expr, dims)
            late.add(name)
            return Name(name)
        return mapped(expr, lambda e: of(e, line, over)) if isinstance(expr, Call | Cast) else expr

    for line in parts.lines:
        match line.expr:
            case _ if line.name in whole:
                expr: Expr = line.expr
            case Reduce(kind=kind, arg=arg, dims=along):
                expr = Reduce(kind, of(arg, line, varies(arg, dims)), along)
            case _:
                expr = of(line.expr, line, varies(line.expr, dims))
        lines.append(Line(line.name, expr, line.number))
    return parts_of(tuple(lines), parts.cells, dims)


def _renamed(expr: Expr, names: dict[str, str]) -> Expr:
    """`expr` that reads the arrays in place of the lines that they hold."""
    return Name(names.get(expr.id, expr.id)) if isinstance(expr, Name) else mapped(expr, lambda e: _renamed(e, names))


def _as_is(expr: Expr, computed: set[str]) -> Expr:
    """A read at the cell's own place of what the pass reads nowhere else is the input itself."""
    own = isinstance(expr, Read) and all(p == Query("index", d) for d, p in zip(expr.dims, expr.places, strict=True))
    return Name(expr.tensor) if isinstance(expr, Read) and own and expr.tensor not in computed else expr
