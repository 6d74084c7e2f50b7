"""Syntax trees of programs, checked against the white list, to our trees."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from baracuda.runtime.values import near

from .complex import LIBRARY, Complex, element, is_complex, parts_of, whole
from .error import ProgramError
from .functions import MAX_REPEATS, Function, Functions, Hoisted, definition, is_small, uses
from .ops import CASTS, OPS, QUERIES, REDUCTIONS
from .remedies import of_function, of_reduction, remedy
from .syntax import BINARY, BUILTIN, IDENTIFIER, INFINITY, MAX_NODES, MAX_POWER, UNARY, counted, excerpt, statements_of
from .tree import Call, Const, Expr, Name, Query, Read, Scope, walk

_LISTED = 40  # names that an error lists


def parse_functions(text: str, known: Functions, file: str) -> dict[str, Function]:
    """Return the functions that `text` defines; each may call those above it and the `known` ones."""
    functions = dict(known)
    for statement in statements_of(text):
        try:
            function = definition(statement, dict(functions), file)
            if functions.get(function.name) is not known.get(function.name):
                raise ProgramError(f"function {function.name!r} is there already; rename one")
            scope = Scope(("dim",), dict.fromkeys(function.parameters, frozenset()))
            reader = Reader(scope, Hoisted(scope.values, iter(()), MAX_NODES), statement.lineno)
            reader.within(function, [Name(p) for p in function.parameters], ("dim",)).run(function.body)
        except ProgramError as error:
            raise ProgramError(str(error), error.number or statement.lineno) from None
        functions[function.name] = function
    return {name: function for name, function in functions.items() if function is not known.get(name)}


def assignment(statement: ast.stmt, reader: Reader) -> tuple[list[str], list[Expr]]:
    """The names that a statement assigns, and their values."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [name], [reader.expression(value)]
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
            names = [t.id for t in targets if isinstance(t, ast.Name)]
            values = reader.several(value) if len(names) == len(targets) else []
            if values and len(values) != len(names):
                got, needed = counted(len(values), "value"), counted(len(names), "name")
                raise ProgramError(f"{excerpt(value)} gives {got} for {needed}")
            if values:
                return names, values
    raise ProgramError(f"expected `name = expression`, got {excerpt(statement)}{remedy(statement)}")


def check_name(name: str, names: Mapping[str, object], scope: Scope) -> None:
    if not IDENTIFIER.fullmatch(name):
        raise ProgramError(f"{name!r} is not a name; use lower-case letters, digits and underscores")
    if name in names or name in scope.dims or name in BUILTIN:
        raise ProgramError(f"{name!r} already means something; choose another name")


def add(hoisted: Hoisted, name: str, value: Expr, number: int) -> None:
    if not hoisted.add(name, value, number):
        raise ProgramError(f"the program has more than {MAX_NODES} operations, powers and functions written out")


def named(hoisted: Hoisted, value: Expr, wish: str, number: int) -> Expr:
    """`value` as a name; of a complex value, both parts, unless they are small."""
    if is_small(value):
        return value
    if is_complex(value):
        re, im = (named(hoisted, p, f"{wish}_{s}", number) for p, s in zip(parts_of(value), ("re", "im"), strict=True))
        return Call("complex", (re, im))
    line = hoisted.fresh(wish)
    add(hoisted, line, value, number)
    return Name(line)


@dataclass(frozen=True, slots=True)
class _Call:
    """A function that is being written out: what its names mean, and what `*dims` stands for."""

    function: Function
    values: dict[str, Expr]
    dims: tuple[str, ...]


class Reader:
    """Checks a Python syntax tree against the white list while turning it into ours."""

    def __init__(self, scope: Scope, hoisted: Hoisted, number: int = 0, call: _Call | None = None) -> None:
        self.scope, self.hoisted, self.number, self.call = scope, hoisted, number, call
        self.in_place = False  # within the brackets of `x[...]`, where a dim's name is its index
        self.make = Complex(lambda expr: named(hoisted, expr, "part", self.number), self._written)

    def expression(self, node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name):
                values, dims = self._values(), () if self.call else self.scope.dims
                hint = f"of a dim, write index({name}) or size({name})" if name in dims else ""
                return values[self._choice(name, values, "name", hint)]
            case ast.Constant(value=bool() | int() | float() as value):
                return Const(self._constant(value))
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int() as power)):
                return self._power(self.expression(base), power)
            case ast.BinOp(left=base, op=ast.Pow(), right=power):
                return self.make.call("pow", (self.expression(base), self.expression(power)))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return self.make.call(BINARY[type(op)], (self.expression(left), self.expression(right)))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
                not isinstance(value, bool)
            ):
                return Const(-self._constant(value))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
                return Const(-math.inf)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
                return self.make.call(UNARY[type(op)], (self.expression(operand),))
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(o) in BINARY for o in ops):
                return self._chain([left, *rights], ops)
            case ast.BoolOp(op=op, values=values):
                return self._fold(BINARY[type(op)], [self.expression(v) for v in values])
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, args)
            case ast.Subscript(value=value, slice=index):
                return self._read(value, index)
        raise ProgramError(f"{excerpt(node)} is not allowed here{remedy(node)}")

    def _values(self) -> dict[str, Expr]:
        """What names mean."""
        if self.call:
            return {**self.call.values, INFINITY: Const(math.inf)}
        indices = {dim: Query("index", dim) for dim in self.scope.dims} if self.in_place else {}
        values = {name: self._value(name) for name in self.hoisted.names}
        return {**values, **indices, INFINITY: Const(math.inf)}

    def _value(self, name: str) -> Expr:
        if self.scope.kinds.get(name) == "complex":
            return element(Name(name))
        return self.hoisted.complex.get(name) or Name(name)

    def _call(self, name: str, args: list[ast.expr]) -> Expr:
        if name in REDUCTIONS:
            if len(args) < 2:
                raise ProgramError(
                    f"{name} needs the dims it runs over, as in {name}(x, {self.scope.dims[-1]})"
                )
            return self.make.reduce(name, self.expression(args[0]), self._dims(args[1:], name))
        if name in QUERIES:
            self._arity(name, args, 1)
            return Query(name, self._optional(args[0]) if name == "present" else self._dim(args[0]))
        if name in CASTS:
            self._arity(name, args, 1)
            of_parts = name == "T" and "complex" in self.scope.kinds.values()
            return self.make.cast("acc" if of_parts else name, self.expression(args[0]))
        if name in self.scope.functions:
            values = self._results(self.scope.functions[name], args)
            if len(values) != 1:
                raise ProgramError(f"{name} gives {len(values)} values; write `a, b = {name}(...)`")
            return values[0]
        self._choice(name, (*BUILTIN, *self.scope.functions), "function", of_function(name))
        self._arity(name, args, OPS[name].arity if name in OPS else 1)
        return self.make.call(name, tuple(self.expression(a) for a in args))

    def _written(self, name: str, args: list[Expr]) -> list[Expr]:
        """What a function of the library of complex numbers returns for parts."""
        function = _library()[name]
        return self.within(function, args, ()).run(function.body)

    def _read(self, value: ast.expr, index: ast.expr) -> Expr:
        """An element of an input at a computed place."""
        tensor = whole(self.expression(value)) if isinstance(value, ast.Name) else None
        if not isinstance(tensor, Name) or tensor.id not in self.scope.axes:
            inputs = ", ".join(self.scope.axes) or "none"
            raise ProgramError(f"{excerpt(value)} has no places; only an input of arrays is read at one: {inputs}")
        axes, indices = self.scope.axes[tensor.id], index.elts if isinstance(index, ast.Tuple) else [index]
        if bad := next((i for i in indices if isinstance(i, ast.Slice | ast.Starred)), None):
            raise ProgramError(f"{excerpt(bad)} is no place; write one int for each axis, as in x[i + 1]")
        if len(indices) != len(axes.dims):
            needed, got = f"{counted(len(axes.dims), 'place')} ({', '.join(axes.dims)})", len(indices)
            raise ProgramError(f"{tensor.id!r} is read at {needed}, got {got}")
        if axes.outside is None:
            text = f"{tensor.id!r} is read at computed places; say what lies outside, as in `outside: 0`"
            raise ProgramError(text)
        within, self.in_place = self.in_place, True
        places = tuple(self.expression(i) for i in indices)
        self.in_place = within
        read = Read(tensor.id, axes.dims, places, axes.outside)
        return element(read) if self.scope.kinds.get(tensor.id) == "complex" else read

    def several(self, node: ast.expr) -> list[Expr]:
        """The values of an expression that may give several."""
        match node:
            case ast.Tuple(elts=elements):
                return [self.expression(e) for e in elements]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in self.scope.functions:
                return self._results(self.scope.functions[name], args)
        return [self.expression(node)]

    def _results(self, function: Function, args: list[ast.expr]) -> list[Expr]:
        """What a call of `function` returns, its lines written out."""
        count = len(function.parameters)
        if len(args) < count or (len(args) > count) != bool(function.dims):
            raise ProgramError(f"{function.name} takes {function.signature}, got {counted(len(args), 'operand')}")
        reader = self.within(function, [self.expression(a) for a in args[:count]], self._dims(args[count:]))
        try:
            return reader.run(function.body)
        except ProgramError as error:
            place = "" if " (in " in str(error) else f" (in {function.name}, {function.file}:{error.number})"
            raise ProgramError(f"{error}{place}") from None

    def within(self, function: Function, values: list[Expr], dims: tuple[str, ...]) -> Reader:
        """A reader of the body of `function` for a call with these operands."""
        scope = replace(self.scope, functions=function.known)
        reader = Reader(scope, self.hoisted, self.number, _Call(function, {}, dims))
        for name, value in zip(function.parameters, values, strict=True):
            reader.assign(name, value, once=uses(function, name) < 2)
        return reader

    def assign(self, name: str, value: Expr, *, once: bool = False) -> None:
        """Let `name` mean `value` within a function: a line of its own unless it is small or read `once`."""
        assert self.call
        if not once:
            value = named(self.hoisted, value, f"{self.call.function.name}_{name}", self.number)
        self.call.values[name] = value

    def run(self, body: Iterable[ast.stmt]) -> list[Expr]:
        """What the lines of a function return."""
        results: list[Expr] = []
        for statement in body:
            try:
                results = self._statement(statement)
            except ProgramError as error:
                raise ProgramError(str(error), error.number or statement.lineno) from None
        return results

    def _statement(self, statement: ast.stmt) -> list[Expr]:
        assert self.call
        match statement:
            case ast.Return(value=ast.expr() as value) if statement is self.call.function.body[-1]:
                return self.several(value)
            case ast.For(
                target=ast.Name(id=name),
                iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int() as times)], keywords=[]),
                body=body,
                orelse=[],
            ):
                if not 0 <= times <= MAX_REPEATS:
                    raise ProgramError(f"range takes a number from 0 to {MAX_REPEATS}, got {times}")
                for i in range(times):
                    self.call.values[name] = Const(i)
                    self.run(body)
            case _:
                for name, result in zip(*assignment(statement, self), strict=True):
                    check_name(name, {}, self.scope)
                    self.assign(name, result)
        return []

    def _dims(self, nodes: list[ast.expr], reduction: str = "") -> tuple[str, ...]:
        """The dims named, one by one or in a list; in a function, `*dims` are those of the call."""
        dims: list[str] = []
        for node in nodes:
            match node:
                case ast.List(elts=[_, *_] as listed) | ast.Tuple(elts=[_, *_] as listed) if len(nodes) == 1:
                    return self._dims(listed, reduction)
                case ast.Starred(value=ast.Name(id=name)) if self.call and name == self.call.function.dims:
                    dims += self.call.dims
                case _:
                    dims.append(self._dim(node, reduction))
        return tuple(dims)

    @staticmethod
    def _arity(name: str, args: list[ast.expr], needed: int) -> None:
        if len(args) != needed:
            raise ProgramError(f"{name} takes {counted(needed, 'operand')}, got {len(args)}")

    def _dim(self, node: ast.expr, reduction: str = "") -> str:
        is_value = not isinstance(node, ast.Name) or node.id in (self.call.values if self.call else self.hoisted.names)
        if is_value and (elementwise := of_reduction(reduction, ast.unparse(node))):
            raise ProgramError(f"{excerpt(node)} is not a dim; {elementwise}")
        if not isinstance(node, ast.Name):
            raise ProgramError(f"{excerpt(node)} is not a dim; this op has {', '.join(self.scope.dims)}")
        if self.call:
            raise ProgramError(f"a function takes its dims as *{self.call.function.dims or 'dims'}, got {node.id!r}")
        return self._choice(node.id, self.scope.dims, "dim")

    def _optional(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise ProgramError(f"present takes the name of an optional tensor, got {excerpt(node)}")
        return self._choice(node.id, sorted(self.scope.optional), "optional tensor")

    @staticmethod
    def _choice(name: str, allowed: object, kind: str, hint: str = "") -> str:
        names = [str(n) for n in allowed]  # type: ignore[attr-defined]
        if name in names:
            return name
        meant = near(name, names)
        known = [name for name in names if name != INFINITY]
        listed = ", ".join(known) or "none" if len(known) < _LISTED else f"{len(known)} in docs/spec-language.md"
        near_or_all = f"did you mean {meant!r}?" if meant else f"known are {listed}"
        raise ProgramError(f"unknown {kind} {name!r}; {hint or near_or_all}")

    @staticmethod
    def _constant(value: bool | int | float) -> bool | int | float:
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ProgramError("a literal must fit in 64 bits")
        if isinstance(value, float) and not math.isfinite(value):
            raise ProgramError("a literal must be finite")
        return value

    @staticmethod
    def _written_out(expr: Expr, times: int) -> Expr:
        """Return `expr`, which the tree holds `times` times: nested, that multiplies."""
        if times * sum(1 for _ in walk(expr)) > MAX_NODES:
            raise ProgramError(f"an operand written out {times} times is too large; give it a name")
        return expr

    def _power(self, base: Expr, power: int) -> Expr:
        if power is True or not 1 <= power <= MAX_POWER:
            text = f"`**` takes a whole exponent from 1 to {MAX_POWER}, got {power}; pow takes any"
            raise ProgramError(text)
        result = self._written_out(base, power)
        for _ in range(power - 1):
            result = self.make.call("mul", (result, base))
        return result

    def _chain(self, terms: list[ast.expr], ops: list[ast.cmpop]) -> Expr:
        values = [self._written_out(self.expression(t), 2) for t in terms]
        pairs: list[Expr] = [
            self.make.call(BINARY[type(op)], (a, b)) for a, op, b in zip(values[:-1], ops, values[1:], strict=True)
        ]
        return self._fold("logical_and", pairs)

    def _fold(self, op: str, values: list[Expr]) -> Expr:
        result = values[0]
        for value in values[1:]:
            result = self.make.call(op, (result, value))
        return result


@cache
def _library() -> dict[str, Function]:
    return parse_functions(LIBRARY.read_text(encoding="utf-8"), {}, LIBRARY.name)
