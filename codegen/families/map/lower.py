"""MapSpec -> MapOp: values of cells, terms of sums, and values of sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from baracuda.runtime import Schedule

from ...conditions.parse import read_condition
from ...lower.op import Scalar, Tensor, Value
from ...lower.shared import first_arch, lower_tensor, scalar, shared_fields
from ...program import Line, Name, Reduce, kind_of
from ...program.tree import Call, Expr, Query, Read, children, mapped, place_along, place_of, reads, walk
from ...spec.names import in_kernel
from ...spec.scope import kinds_of
from ...text import Name as Identifier
from ...text import names
from .batches import invariant
from .bounds import bounds_of, divisors, long_scalars
from .by_index import alone, lists_of
from .even import Steps
from .extents import is_shape
from .kinds import KindGroup, computed, kind_groups
from .op import Body, Entry, MapOp, PlacedRead, Store, Sum, joined
from .passes import Pass
from .program import Parts, copies_of, groups_of, queries_of, split
from .spec import MapSpec
from .uniform import Uniforms

# Threads of a block, packs of 16 bytes that each has in flight, and the number of blocks that sums are split into when
# there are few of them: a fixed one, so that every sum has the same order on every GPU. 1056 is 8 for each of the 132
# multiprocessors of an H200, where these were the fastest: places of many operands leave registers for fewer packs.
# Cells that are stored are one pack a thread: in GB/s of a copy's 4248 and a fill's 4643, alibi 4160 (128 threads 4234,
# but 3350 for 3681 where rows are no whole packs), repeat by (4, 4) 3863 (two packs 3763, four 3719).
USUAL = Schedule(256, (("packs", 4), ("blocks", 1056)))
SUMS = Schedule(256, (("packs", 2), ("blocks", 1056)))
_FEW = 2  # operands of terms, tensors and indices together


def lower_map(spec: MapSpec, spec_path: str) -> MapOp:
    """The decisions for `spec`, which has been checked."""
    return lower_walks(spec, spec_path, kind_groups(spec), lambda op, of_kinds: op)


def lower_walks(
    spec: MapSpec, spec_path: str, groups: Iterable[KindGroup], made: Callable[[MapOp, Mapping[str, Pass]], MapOp]
) -> MapOp:
    """The decisions for the passes of all kinds, each as `made` of a map's."""
    walks = [walk for group in groups for walk in _walks(group, spec, spec_path, made)]
    if len(walks) == 1:
        return replace(walks[0], invariant=names(invariant(spec)))
    arguments = tuple(lower_tensor(n, t, spec, over=t.held) for n, t in spec.arguments.items())
    sorts = {name: sort for of in walks for name, sort in of.kinds.items()}
    return replace(
        walks[-1],
        **shared_fields(spec, spec_path, arguments, _shapes_of(spec)),
        space=groups_of(spec, max(map(split, spec.by_kind.values()), key=lambda parts: len(parts.cells))),
        axes=tuple((Identifier(name), t.groups) for name, t in spec.arguments.items()),
        invariant=names(invariant(spec)),
        scalars=tuple(dict.fromkeys(s for of in walks for s in of.scalars)),
        entries=tuple(_entries(spec, *(of.terms for of in walks), choice=False)),
        kinds=sorts,
        kinds_offered=names(spec.kinds),
        passes=tuple(replace(of, kinds=sorts, number=number) for number, of in enumerate(walks, 1)),
    )


def _walks(
    group: KindGroup, spec: MapSpec, spec_path: str, made: Callable[[MapOp, Mapping[str, Pass]], MapOp]
) -> Iterator[MapOp]:
    """The passes of some kinds that take the same ones."""
    kind, passes = next(iter(group.passes.items()))
    for number, first in enumerate(passes):
        alike = {name: of[number] for name, of in group.passes.items()}
        is_one = all(computed(of) == computed(first) for of in alike.values())
        table = {} if is_one else {name: spec.kinds[name] for name in alike if name}
        of = first.spec.model_copy(update={"kinds": table})
        op = _lowered(of, spec_path, {kind: first} if is_one else alike)
        yield replace(made(op, {kind: first} if is_one else alike), served=names(filter(None, alike)), loop=first.loop)


def _shapes_of(spec: MapSpec) -> dict[str, str]:
    return {n: f"[{', '.join(t.dims)}]" for n, t in spec.arguments.items()}


def _lowered(spec: MapSpec, spec_path: str, of_kinds: Mapping[str, Pass]) -> MapOp:
    """What one walk over the cells computes, for each kind."""
    keys = {lists_of(of.spec, of.parts) for of in of_kinds.values()}
    lists = next(iter(keys)) if len(keys) == 1 else None
    if lists is not None:
        of_kinds = {kind: replace(of, parts=alone(of.parts)) for kind, of in of_kinds.items()}
    parts = next(iter(of_kinds.values())).parts
    taken = {name for of in of_kinds.values() for name in (*of.parts.dims, *of.spec.descriptor)}
    uniforms = Uniforms(taken, one_program=not spec.kinds)
    each = {kind: Lowering(of.spec, of.parts, parts, uniforms) for kind, of in of_kinds.items()}
    lowering = next(iter(each.values()))
    arguments = tuple(lowering.tensors[name] for name in spec.arguments)
    shared = shared_fields(spec, spec_path, arguments, _shapes_of(spec))
    queries = {query for of in each.values() for query in queries_of(of.parts)}
    indices = tuple(d for d in spec.dims if Query("index", d) in queries)
    values = [name for name in spec.outputs if name not in parts.late]
    late_outputs = [name for name in spec.outputs if name in parts.late]
    scalars = {s.name for of in each.values() for s in of.scalars}
    copies = set(lowering.copies.items()).intersection(*(of.copies.items() for of in each.values()))

    def body(name: str, outputs: list[str], sums: str = "") -> Body:
        bodies = {kind: of.body(name, outputs, **of.reduced(sums)) for kind, of in each.items()}
        if not spec.kinds:
            return next(iter(bodies.values()))
        return joined({Identifier(kind): of for kind, of in bodies.items()})

    terms = body("terms", values, "sums")
    op = MapOp(
        **shared,
        arch=Identifier(first_arch(spec)),
        dims=tuple((Identifier(name), read_condition(dim.of, spec.descriptor)) for name, dim in spec.dims.items()),
        shares=tuple((Identifier(name), dim.axes) for name, dim in spec.dims.items() if dim.axes),
        space=groups_of(spec, parts),
        axes=tuple((Identifier(name), t.groups) for name, t in spec.arguments.items()),
        summed=parts.summed,
        placed=tuple((Identifier(name), names(dims)) for name in spec.inputs if (dims := parts.placed(name))),
        indices=names(indices),
        sizes=names(d for d in spec.dims if Query("size", d) in queries),
        scalars=tuple(scalar(n, f) for n, f in spec.descriptor.items() if n in scalars),
        cells=body("cells", values),
        terms=terms,
        epilogue=body("epilogue", late_outputs, "known"),
        invariant=(),
        lists=names(lists or ()),
        copies=tuple((Identifier(n), Identifier(of)) for n, of in lowering.copies.items() if (n, of) in copies),
        entries=tuple(_entries(spec, terms, choice=lists is None)),
        kinds={name: kind for of in each.values() for name, kind in of.kinds.items()},
        kinds_offered=names(spec.kinds),
    )
    bounds = bounds_of(op.bodies)
    places = [s.place for s in terms.sums if s.place is not None]
    in_order = all(place == place_along(parts.summed) for place in places)
    return replace(
        op,
        bounds=bounds,
        long_scalars=long_scalars(op.bodies),
        divisors=divisors(op.bodies) if bounds else frozenset(),
        in_order=in_order and not any(is_shape(dim, spec) for dim in parts.summed),
    )


def _entries(spec: MapSpec, *terms: Body, choice: bool) -> Iterable[Entry]:
    """With a workspace for sums or, as a `choice`, without; several passes, each with its `terms`, have one anyway."""
    summed = [of for of in terms if of.sums]
    schedule = SUMS if any(len(of.operands) > _FEW for of in summed) else USUAL
    # Sums that blocks share take a workspace; without one, a block for each is slower.
    unshared = Schedule(schedule.threads, tuple((dict(schedule.numbers) | {"blocks": 1}).items()))
    schedules = (schedule, unshared) if summed and choice else (schedule,)
    return (Entry(Identifier(tag), of) for of in schedules for tag in spec.dtypes)


def _sums_of_spreads(sums: tuple[Line, ...], spec: MapSpec) -> Iterator[tuple[str, str]]:
    """The sums of terms whose spread is reduced, too, which needs their mean, each with that spread."""
    always = {x.name: x.expr for x in sums if isinstance(x.expr, Reduce) and not _optional(x.name, spec)}
    spreads = {replace(expr, kind="sum"): name for name, expr in always.items() if expr.kind == "spread"}
    for name, expr in always.items():
        if expr in spreads:
            yield name, spreads[expr]


def _optional(name: str, spec: MapSpec) -> bool:
    return name in spec.outputs and bool(spec.outputs[name].optional)


class Lowering:
    """Of one kind; sums have the places of those of the `first`."""

    def __init__(
        self, spec: MapSpec, parts: Parts, first: Parts | None = None, uniforms: Uniforms | None = None
    ) -> None:
        self.spec, self.parts, first = spec, parts, first or parts
        self.uniforms = uniforms or Uniforms({*parts.dims, *spec.descriptor}, one_program=not spec.kinds)
        self.sums = parts.sum_lines
        self.slots = {x.name: in_kernel(of.name) for x, of in zip(self.sums, first.sum_lines, strict=True)}
        self.beside = {} if spec.kinds else dict(_sums_of_spreads(self.sums, spec))
        self.slots |= {name: in_kernel(spread) for name, spread in self.beside.items()}
        self.tensors = {n: lower_tensor(n, t, spec, over=t.held) for n, t in spec.tensors.items()}
        self.kinds = dict(kinds_of(spec, parts.lines))
        self.copies = copies_of(spec, parts)
        self.steps = Steps(parts, spec, self.kinds)
        read = {name for line in parts.lines for name in parts.needed([line.name])}
        fields = spec.descriptor.items()
        self.scalars = tuple(scalar(n, f) for n, f in fields if f.is_number and n in read)

    def reduced(self, of: str) -> dict[str, tuple[Line, ...]]:
        """What a body of terms reduces ("sums"), and what its epilogue knows ("known")."""
        sums = self.sums if of == "known" else tuple(x for x in self.sums if x.name not in self.beside)
        return {of: sums} if of else {}

    def body(self, name: str, outputs: list[str], sums: tuple[Line, ...] = (), known: tuple[Line, ...] = ()) -> Body:
        """The computation of a cell: the lines that outputs and terms need."""
        ready = frozenset(x.name for x in known)
        terms = [name for line in sums for name in self.parts.needed([line.name], ready) - {line.name}]
        copied = {self.copies[n] for n in outputs if n in self.copies}
        computed = [n for n in outputs if n not in self.copies]
        wanted = self.parts.needed([*computed, *terms], ready)
        placed = [x for x in self._lines(wanted - ready) if x.name in self.parts.reads]
        of_sums = {n for line in sums for n in reads(line.expr)}
        inner = self.parts.needed([*computed, *of_sums], ready | frozenset(self.parts.reads))
        lines = [x for x in self._lines(inner - ready) if x.name not in self.parts.reads]
        names_read = {n for x in lines for n in reads(x.expr)} | set(terms)
        named_lines = [x for x in lines if x.name not in self.spec.outputs or x.name in names_read]
        places = [place for x in sums if (place := place_of(x.expr)) is not None]
        exprs = [*(x.expr for x in (*lines, *sums)), *places]
        used = {n for x in exprs for n in reads(x)} | {*outputs}
        shared = [x for x in named_lines if self._is_fixed(x) and self.uniforms.one_program]
        body = Body(
            name=Identifier(name),
            known=tuple(self._sum(x) for x in known if x.name in used),
            reads=tuple(t for t in self._plain if t.name in wanted - self._numbers | copied),
            placed=tuple(self._placed(x.name) for x in placed),
            uniform=tuple(t for t in self._plain if t.name in inner & self._numbers),
            converted=tuple(t for t in self._plain if t.name in inner - self._numbers),
            indices=self._queried("index", exprs),
            sizes=self._queried("size", exprs),
            scalars=self._scalars(exprs),
            shared=tuple(map(self._value, shared)),
            values=tuple(self._value(x) for x in named_lines if x not in shared),
            stores=tuple(self._store(n, names_read) for n in outputs),
            sums=tuple(self._sum(x) for x in sums),
        )
        body, kinds = self.uniforms.hoisted(body, self._uniform, self.kinds)
        self.kinds |= kinds
        return body

    def _is_fixed(self, line: Line) -> bool:
        """Whether all cells have the same value, before any reduction."""
        behind = self.parts.needed([line.name])
        return not self.parts.dims[line.name] and behind.isdisjoint(self.parts.late | self.parts.reads.keys())

    def _uniform(self, expr: Expr) -> Expr | None:
        """`expr` in terms of what has one value for all cells, if it has one itself."""
        match expr:
            case Name(id=name) if (line := self.parts.line(name)) is not None:
                if not self._is_fixed(line):
                    return None
                return expr if self.uniforms.one_program else self._uniform(line.expr)
            case Name(id=name):
                return expr if name in self.spec.descriptor or name in self._numbers else None
            case Query(what="index") | Reduce() | Read() | Call(op="philox"):
                return None
        known: dict[Expr, Expr] = {}
        for child in children(expr):
            if (of := self._uniform(child)) is None:
                return None
            known[child] = of
        return mapped(expr, known.__getitem__)

    @cached_property
    def _plain(self) -> list[Tensor]:
        """The inputs that are read as they are."""
        return [t for n, t in self.tensors.items() if n in self.spec.inputs and not self.parts.placed(n)]

    @cached_property
    def _numbers(self) -> frozenset[str]:
        """The inputs that are one number for all cells."""
        return frozenset(name for name, tensor in self.spec.inputs.items() if not tensor.dims)

    def _queried(self, what: str, exprs: Iterable[Expr]) -> tuple[Identifier, ...]:
        """The dims whose index or size the expressions name."""
        queries = {e for x in exprs for e in walk(x) if isinstance(e, Query)}
        return names(d for d in self.spec.dims if Query(what, d) in queries)

    def _scalars(self, exprs: Iterable[Expr]) -> tuple[Scalar, ...]:
        used = {n for x in exprs for n in reads(x)}
        return tuple(s for s in self.scalars if s.name in used)

    def _placed(self, name: str) -> PlacedRead:
        line, read = self.parts.line(name), self.parts.reads[name]
        assert line is not None
        places = self.parts.computed(line)
        wanted = self.parts.needed({n for place in places for n in reads(place)}, frozenset(self.parts.reads))
        lines = self._lines(wanted)
        values = [x for x in lines if x.name not in self.parts.reads]
        exprs = [*places, *(x.expr for x in values)]
        step = self.steps.of(places)
        return PlacedRead(
            name=Identifier(name),
            tensor=self.tensors[read.tensor],
            places=places,
            outside=read.outside,
            indices=self._queried("index", exprs),
            sizes=self._queried("size", exprs),
            scalars=self._scalars(exprs),
            uniform=tuple(t for t in self._plain if t.name in wanted & self._numbers),
            converted=tuple(t for t in self._plain if t.name in wanted - self._numbers),
            placed=tuple(self._placed(x.name) for x in lines if x.name in self.parts.reads),
            values=tuple(self._value(x) for x in values),
            still=names(sorted(step.still)),
            pieces=step.pieces,
            same=step.same,
        )

    def _lines(self, names: Iterable[str]) -> list[Line]:
        wanted = set(names)
        return [line for line in self.parts.lines if line.name in wanted]

    def _value(self, line: Line) -> Value:
        return Value(Identifier(line.name), self.kinds[line.name], line.expr)

    def _store(self, name: str, names_read: set[str]) -> Store:
        line = self.parts.line(name)
        assert line is not None
        tensor = self.tensors[self.spec.outputs[name].updates or name]
        if name in self.copies:
            return Store(tensor, None, Identifier(self.copies[name]))
        named = name in names_read or name in self.parts.sums
        return Store(tensor, Name(name) if named else line.expr, None)

    def _is_zero(self, expr: Expr) -> bool:
        """Whether it is zero for zero inputs, so that missing cells need no condition."""
        match expr:
            case Name(id=name):
                return name in self.spec.inputs
            case Call(op="abs" | "real" | "imag", args=(a,)):
                return self._is_zero(a)
            case Call(op="mul", args=(a, b)) if self._is_zero(a) and self._is_zero(b):
                return True
            case Call(op="mul", args=(a, b)):  # an integer is finite
                kinds = kind_of(a, self.kinds), kind_of(b, self.kinds)
                return (self._is_zero(a) and kinds[1] == "int") or (self._is_zero(b) and kinds[0] == "int")
        return False

    def _sum(self, line: Line) -> Sum:
        assert isinstance(line.expr, Reduce)
        tensor: Tensor | None = self.tensors.get(line.name)
        own = tensor is not None and not any(line.name in reads(x.expr) for x in self.parts.lines if x != line)
        return Sum(
            name=Identifier(line.name),
            slot=self.slots[line.name],
            beside=line.name in self.beside,
            how=line.expr.kind,
            arg=line.expr.arg,
            of=kind_of(line.expr.arg, self.kinds),
            kind=self.kinds[line.name],
            place=place_of(line.expr),
            optional=tensor.optional if tensor is not None and own else "",
            zero_if_missing=line.expr.kind == "sum" and self._is_zero(line.expr.arg),
        )
