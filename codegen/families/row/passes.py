"""Split a program into passes along the row: a row reduction can be read one pass after it is accumulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...lower.op import Tensor, Value
from ...program import Expr, Line, Name, ProgramError, Reduce, kind_of
from ...program.tree import Call, Cast, Const, Query, Read, at_index, children, reads, unused, varies, walk
from ...text import Name as Identifier
from .op import Columns, ColumnSum, Look, Pass, Reduction, Store
from .spec import RowSpec

_KINDS = ("sum", "mean", "max", "min")


@dataclass(frozen=True, slots=True)
class Schedule:
    lines: tuple[Line, ...]  # the program's, with a line for each reduction
    passes: tuple[Pass, ...]
    columns: Columns
    names_read: frozenset[str]
    kinds: Mapping[str, str]


def schedule(
    lines: tuple[Line, ...],
    spec: RowSpec,
    tensors: dict[str, Tensor],
    kinds: dict[str, str],
    rows: str,
    cols: str,
) -> Schedule:
    """Decide what each pass computes, feeds and stores, and what is left for the columns."""
    taken = {*spec.tensors, *spec.descriptor}
    named, all_kinds = _name_reductions(lines, rows, taken), dict(kinds)
    named = _as_reads(named, spec, (rows, cols))
    dims = {n: frozenset(t.dims) for n, t in spec.inputs.items()} | {n: frozenset() for n in spec.descriptor}
    lifted = _name_row_values(named, cols, dims, all_kinds, taken)
    return _Scheduler(lifted, spec, tensors, all_kinds, rows, cols).schedule()


def _name_reductions(lines: tuple[Line, ...], rows: str, taken: set[str]) -> tuple[Line, ...]:
    """Give every reduction a line of its own, once; a mean down the columns becomes a sum and a division."""
    named: list[Line] = []
    names: dict[Expr, str] = {}
    taken = taken | {line.name for line in lines}

    def lift(expr: Expr, line: Line) -> Expr:
        match expr:
            case Call(op=op, args=args):
                return Call(op, tuple(lift(a, line) for a in args))
            case Cast(to=to, arg=arg):
                return Cast(to, lift(arg, line))
            case Reduce(kind=kind, arg=arg, dims=dims):
                if kind == "mean" and dims == (rows,):
                    total = lift(Reduce("sum", arg, dims), line)
                    return Call("div", (total, Query("size", rows)))
                reduced = Reduce(kind, lift(arg, line), dims)
                if reduced not in names:
                    name = unused(f"{line.name}_{kind}", taken)
                    taken.add(name)
                    named.append(Line(name, reduced, line.number))
                    names[reduced] = name
                return Name(names[reduced])
        return expr

    for line in lines:
        if isinstance(line.expr, Reduce) and not (line.expr.kind == "mean" and line.expr.dims == (rows,)):
            reduced = Reduce(line.expr.kind, lift(line.expr.arg, line), line.expr.dims)
            known = names.setdefault(reduced, line.name)
            named.append(Line(line.name, reduced if known == line.name else Name(known), line.number))
        else:
            named.append(Line(line.name, lift(line.expr, line), line.number))
    return tuple(named)


def _as_reads(lines: tuple[Line, ...], spec: RowSpec, dims: tuple[str, str]) -> tuple[Line, ...]:
    """Load what a sum picks out of a row by its index; if the array may be overwritten, before the row is reduced."""
    cols = dims[1]
    written = {n for t in spec.outputs.values() for n in (*t.may_alias, t.updates)}
    over = {n: frozenset(t.dims) for n, t in spec.inputs.items()} | {n: frozenset[str]() for n in spec.descriptor}
    index = Query("index", cols)
    found: list[Line] = []
    for line in lines:
        match line.expr:
            case Reduce(
                kind="sum",
                arg=Call(
                    op="where",
                    args=(Call(op="equal", args=(Query() as query, place)), Name(id=name), Const(value=0.0) as none),
                ),
                dims=(over_cols,),
            ) if over_cols == cols and query == index and over.get(name) == frozenset(dims):
                if cols not in varies(place, over) and not spec.inputs[name].optional:
                    read = Read(name, (cols,), (place,), none)
                    line = Line(line.name, Reduce("sum", read, (cols,)) if name in written else read, line.number)
        over[line.name] = varies(line.expr, over)
        found.append(line)
    return tuple(found)


def _name_row_values(
    lines: tuple[Line, ...], cols: str, dims: dict[str, frozenset[str]], kinds: dict[str, str], taken: set[str]
) -> tuple[Line, ...]:
    """Give what elements of a row share a line of its own: a compiler does not divide ahead of a condition."""
    named: list[Line] = []
    names: dict[Expr, str] = {}
    taken = taken | {line.name for line in lines}

    def lift(expr: Expr, line: Line) -> Expr:
        match expr:
            case Call() if cols not in varies(expr, dims):
                if expr not in names:
                    name = unused(f"{line.name}_once", taken)
                    taken.add(name)
                    named.append(Line(name, expr, line.number))
                    names[expr], dims[name], kinds[name] = name, varies(expr, dims), kind_of(expr, kinds)
                return Name(names[expr])
            case Call(op=op, args=args):
                return Call(op, tuple(lift(a, line) for a in args))
            case Cast(to=to, arg=arg):
                return Cast(to, lift(arg, line))
            case Reduce(kind=kind, arg=arg, dims=over):
                return Reduce(kind, lift(arg, line), over)
        return expr

    for line in lines:
        of_columns = isinstance(line.expr, Reduce) and cols not in line.expr.dims
        inner = line.expr.arg if isinstance(line.expr, Reduce) else line.expr
        many = len(varies(inner, dims)) > 1  # a value an element
        named.append(Line(line.name, lift(line.expr, line), line.number) if many else line)
        dims[line.name] = varies(line.expr, dims) | ({cols} if of_columns else set())
        kinds.setdefault(line.name, "float")
    return tuple(named)


class _Scheduler:
    def __init__(
        self,
        lines: tuple[Line, ...],
        spec: RowSpec,
        tensors: dict[str, Tensor],
        kinds: dict[str, str],
        rows: str,
        cols: str,
    ) -> None:
        self.lines, self.spec, self.tensors, self.kinds, self.rows, self.cols = (
            lines,
            spec,
            tensors,
            kinds,
            rows,
            cols,
        )
        self.by_name = {line.name: line for line in lines}
        self.level: dict[str, int] = {}  # the first pass that may read a name
        self.fed: dict[str, int] = {}  # the pass that feeds a row reduction
        self.after_columns: set[str] = set()  # names that need column sums
        self.largest: dict[str, str] = {}  # of sums of what is below the largest of a row, its name
        self.dims: dict[str, frozenset[str]] = {n: frozenset(t.dims) for n, t in spec.inputs.items()}
        self.dims |= {n: frozenset() for n in spec.descriptor}
        for line in lines:
            self._place(line)

    def _place(self, line: Line) -> None:
        dims = varies(line.expr, self.dims)
        needs = reads(line.expr)
        level = max((self.level.get(n, 0) for n in needs), default=0)
        late = bool(needs & self.after_columns)
        if isinstance(line.expr, Reduce):
            if line.expr.kind in _KINDS and kind_of(line.expr, self.kinds) == "int":
                text = f"{line.name!r} is a {line.expr.kind} of ints; the row family reduces floats, as in"
                raise ProgramError(f"{text} {line.expr.kind}(acc(i), {self.cols})", line.number)
            if line.expr.dims == (self.cols,) and line.expr.kind in _KINDS and not late:
                if below := self._below(line):
                    x, top = below
                    self.largest[line.name], level = top, self.fed[top]
                    self.by_name[line.name] = Line(line.name, Reduce("sum", x, line.expr.dims), line.number)
                self.fed[line.name], level = level, level + 1
            elif line.expr.dims == (self.rows,) and line.expr.kind == "sum" and not late:
                self.after_columns.add(line.name)
                dims |= {self.cols}
            else:
                raise self._refuse(line, f"{line.expr.kind} over {', '.join(line.expr.dims)}")
        elif late:
            self.after_columns.add(line.name)
            if self.rows in dims:
                raise self._refuse(line, "a value per row that needs a sum over all rows")
        self.dims[line.name], self.level[line.name] = dims, level

    def _below(self, line: Line) -> tuple[Expr, str] | None:
        """Of a sum of e^(x - top) along the row, where `top` is the largest x: x, and the name of that reduction."""
        if isinstance(line.expr, Reduce) and line.expr.kind == "sum":
            match self._known(line.expr.arg):
                case Call(op="exp", args=(power,)):
                    match self._known(power):
                        case Call(op="sub", args=(x, top)) if name := self._largest(top, x):
                            return x, name
        return None

    def _largest(self, expr: Expr, x: Expr) -> str:
        """The name of the reduction, if `expr` is the largest `x` of a row."""
        top = self._known(expr)
        found = self.by_name.get(top.id) if isinstance(top, Name) else None
        return found.name if found and found.expr == Reduce("max", x, (self.cols,)) else ""

    def _known(self, expr: Expr) -> Expr:
        """What a name stands for, down to a reduction or an input."""
        while True:
            match expr:
                case Name(id=name) if name in self.by_name and not isinstance(self.by_name[name].expr, Reduce):
                    expr = self.by_name[name].expr
                case Call(op="stop_gradient", args=(inner,)):
                    expr = inner
                case _:
                    return expr

    def _refuse(self, line: Line, role: str) -> ProgramError:
        return ProgramError(
            f"{line.name!r} is {role}; the row family reduces over {self.cols} (sum, mean, max, min) and, "
            f"last of all, over {self.rows} (sum, mean)",
            line.number,
        )

    def schedule(self) -> Schedule:
        last = max(self.level.values(), default=0)
        outputs = [self.by_name[name] for name in self.spec.outputs]
        stores = [x for x in outputs if self.tensors[x.name].over == "element"]
        column_stores = [x for x in outputs if self.tensors[x.name].over == "col"]
        for line in outputs:
            self._check_output(line)
        sums = self._column_sums(column_stores)
        passes = tuple(self._pass(number, last, stores, sums) for number in range(last + 1))
        used = {n.id for line in self.lines for n in walk(line.expr) if isinstance(n, Name)}
        return Schedule(self.lines, passes, self._columns(column_stores, sums), frozenset(used), self.kinds)

    def _check_output(self, line: Line) -> None:
        allowed = frozenset(self.spec.outputs[line.name].dims)
        if not self.dims[line.name] <= allowed:
            extra = ", ".join(sorted(self.dims[line.name] - allowed))
            raise ProgramError(f"{line.name!r} varies along {extra}, which its dims do not list", line.number)
        if line.name in self.after_columns and self.rows in allowed:
            raise self._refuse(line, "a value per row that needs a sum over all rows")

    def _column_sums(self, stores: list[Line]) -> list[Line]:
        wanted = self._needed(stores, lambda name: name in self.after_columns)
        return [x for x in self.lines if x.name in wanted and isinstance(x.expr, Reduce)]

    def _needed(self, ends: Iterable[Line], through: Callable[[str], bool]) -> set[str]:
        """The names that `ends` are or read, directly or through names that satisfy `through`."""
        wanted: set[str] = set()
        pending = [x.name for x in ends]
        while pending:
            name = pending.pop()
            if name in wanted:
                continue
            wanted.add(name)
            if name in self.by_name and through(name):
                pending += reads(self.by_name[name].expr)
        return wanted

    def _pass(self, number: int, last: int, stores: list[Line], sums: list[Line]) -> Pass:
        fed = [self.by_name[x.name] for x in self.lines if self.fed.get(x.name) == number]
        largest = {self.largest[x.name] for x in fed if x.name in self.largest}
        first = [x for x in fed if not largest or x.name in largest]
        again = [x for x in fed if x not in first]
        looks = (self._look(first, stores, sums) if number == last else self._look(first), self._look(again))
        return Pass(
            row_values=tuple(
                self._value(x) for x in self.lines if self._is_row_value(x) and self.level[x.name] == number
            ),
            row_stores=tuple(self._row_stores(number, last)),
            looks=tuple(look for look in looks if look.reductions or look.stores or look.column_sums),
        )

    def _look(self, fed: list[Line], stores: Sequence[Line] = (), sums: Sequence[Line] = ()) -> Look:
        ends = [*fed, *stores, *sums]
        element_values = {
            x.name for x in self.lines if self.dims[x.name] and x.name not in self.fed and not self._is_row_value(x)
        } - self.after_columns
        computed = element_values | {x.name for x in ends}
        wanted = self._needed(ends, lambda n: n in computed) & computed
        names_read = {n for name in wanted for n in reads(self.by_name[name].expr)}
        stored = {x.name for x in stores}
        # A stored value gets a name of its own only when another line reads it.
        named_lines = [x for x in self.lines if x.name in wanted & element_values and x.name not in stored - names_read]
        exprs = [x.expr for x in (*named_lines, *ends)]
        return Look(
            reads=tuple(t for n, t in self.tensors.items() if n in names_read and t.over != "row" and t.role != "out"),
            values=tuple(self._value(x) for x in named_lines),
            reductions=tuple(self._reduction(x) for x in fed),
            stores=tuple(self._store(x, x.name in names_read) for x in stores),
            column_sums=tuple(self._column_sum(x) for x in sums),
            column_index=any(map(self._needs_index, exprs)),
            places=tuple(dict.fromkeys(place for e in exprs for part in walk(e) if (place := self._place_of(part)))),
        )

    def _place_of(self, expr: Expr) -> Expr | None:
        """The whole number that the column's index is compared with."""
        place = at_index(self.cols, expr)
        return place if place is not None and kind_of(place, self.kinds) == "int" else None

    def _needs_index(self, expr: Expr) -> bool:
        """Whether it reads the column's index, and does not only ask whether that is some place."""
        place = self._place_of(expr)
        parts = children(expr) if place is None else (place,)
        return expr == Query("index", self.cols) or any(map(self._needs_index, parts))

    def _is_row_value(self, line: Line) -> bool:
        if line.name in self.fed or line.name in self.after_columns or isinstance(line.expr, Reduce):
            return False
        return self.cols not in self.dims[line.name]

    def _row_stores(self, number: int, last: int) -> Iterable[Store]:
        for name in self.spec.outputs:
            if self.tensors[name].over == "row" and min(self.level[name], last) == number:
                yield self._store(self.by_name[name], True)

    def _store(self, line: Line, named: bool) -> Store:
        return Store(self._target(line.name), Name(line.name) if named else line.expr)

    def _target(self, name: str) -> Tensor:
        updates = self.spec.outputs[name].updates
        return self.tensors[updates] if updates else self.tensors[name]

    def _columns(self, stores: list[Line], sums: list[Line]) -> Columns:
        summed = {x.name for x in sums}
        wanted = self._needed(stores, lambda n: n not in summed)
        named_lines = [x for x in self.lines if x.name in wanted and x.name not in summed]
        for line in stores if not sums else ():
            raise self._refuse(line, "a value per column that is no sum over all rows")
        for line in named_lines:
            if any(isinstance(e, Query) and e.what == "index" for e in walk(line.expr)):
                raise self._refuse(line, "a value with an index where only column sums are known")
            if isinstance(line.expr, Reduce):
                raise self._refuse(line, "read where only column sums are known")
        names_read = {n for x in named_lines for n in reads(x.expr)}
        return Columns(
            reads=tuple(t for n, t in self.tensors.items() if n in names_read and t.over == "col" and t.role != "out"),
            values=tuple(self._value(x) for x in named_lines),
            stores=tuple(self._store(x, True) for x in stores),
        )

    def _column_sum(self, line: Line) -> ColumnSum:
        assert isinstance(line.expr, Reduce)
        tensor = self.tensors.get(line.name)
        return ColumnSum(Identifier(line.name), line.expr.arg, tensor.optional if tensor else "")

    def _reduction(self, line: Line) -> Reduction:
        assert isinstance(line.expr, Reduce)
        return Reduction(Identifier(line.name), line.expr.kind, line.expr.arg, self.largest.get(line.name, ""))

    def _value(self, line: Line) -> Value:
        return Value(Identifier(line.name), self.kinds[line.name], line.expr)
