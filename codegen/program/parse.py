"""Program text to tree and back: Python's syntax, Python's parser, and a white list."""

from __future__ import annotations

import ast
import math
import re
from difflib import get_close_matches

from .ops import CASTS, OPS, QUERIES, REDUCTIONS
from .tree import Call, Cast, Const, Expr, Line, Name, Query, Reduce, Scope, reads, varies, walk

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "left_shift",
    ast.RShift: "right_shift",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.And: "logical_and",
    ast.Or: "logical_or",
}
_UNARY: dict[type[ast.AST], str] = {ast.USub: "neg", ast.Not: "logical_not", ast.Invert: "invert"}
_INFIX = frozenset(_BINARY.values()) | frozenset(_UNARY.values())
FUNCTIONS = tuple(name for name in OPS if name not in _INFIX)
MAX_NODES = 2000  # of one program's text: far above any kernel, far below what makes the parser suffer
MAX_DEPTH = 100  # of its syntax: every reading of a program recurses
MAX_POWER = 16
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,63}")


class ProgramError(ValueError):
    """A line of a program that cannot be understood; `number` is its line within the text."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


def parse(text: str, scope: Scope) -> tuple[Line, ...]:
    """Return the lines of `text`, each of which may read the scope's values and the names above it."""
    names = dict(scope.values)
    lines: list[Line] = []
    nodes = 0
    for statement in _statements(text):
        try:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    line = Line(name, _Reader(scope, names).expression(value), statement.lineno)
                case _:
                    raise ProgramError(f"expected `name = expression`, got {_excerpt(statement)}")
            nodes += sum(1 for _ in walk(line.expr))
            if nodes > MAX_NODES:
                raise ProgramError(f"the program has more than {MAX_NODES} operations, powers written out")
            if not _IDENTIFIER.fullmatch(name):
                raise ProgramError(f"{name!r} is not a name; use lower-case letters, digits and underscores")
            if name in names or name in scope.dims or name in (*FUNCTIONS, *REDUCTIONS, *QUERIES, *CASTS):
                raise ProgramError(f"{name!r} already means something; choose another name")
        except ProgramError as error:
            raise ProgramError(str(error), statement.lineno) from None
        names[name] = varies(line.expr, names)
        lines.append(line)
    return tuple(lines)


def parse_expression(text: str, scope: Scope) -> Expr:
    """Return the tree of one expression."""
    match _statements(text):
        case [ast.Expr(value=value)]:
            return _Reader(scope, dict(scope.values)).expression(value)
    raise ProgramError(f"expected one expression, got {text!r}")


def _statements(text: str) -> list[ast.stmt]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = getattr(error, "lineno", None) or 1
        raise ProgramError(
            f"not an expression of this language: {getattr(error, 'msg', error)}", number
        ) from None
    if too_much := excess(tree):
        raise ProgramError(f"the program {too_much}")
    return tree.body


def excess(tree: ast.AST) -> str:
    """What about the size of a syntax tree would make its readers suffer, or ""."""
    nodes, level = 0, [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        nodes += len(level)
        if nodes > MAX_NODES:
            return f"has more than {MAX_NODES} syntax nodes"
        if not level:
            return ""
    return f"nests deeper than {MAX_DEPTH} operators; write it in shorter parts"


def _excerpt(node: ast.AST) -> str:
    text = ast.unparse(node)
    return repr(text if len(text) <= 60 else text[:57] + "...")


class _Reader:
    """Checks a Python syntax tree against the white list while turning it into ours."""

    def __init__(self, scope: Scope, names: dict[str, frozenset[str]]) -> None:
        self.scope, self.names = scope, names

    def expression(self, node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name):
                return Name(self._choice(name, self.names, "name"))
            case ast.Constant(value=bool() | int() | float() as value):
                return Const(self._constant(value))
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int() as power)):
                return self._power(self.expression(base), power)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return Call(_BINARY[type(op)], (self.expression(left), self.expression(right)))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
                not isinstance(value, bool)
            ):
                return Const(-self._constant(value))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return Call(_UNARY[type(op)], (self.expression(operand),))
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(o) in _BINARY for o in ops):
                return self._chain([left, *rights], ops)
            case ast.BoolOp(op=op, values=values):
                return self._fold(_BINARY[type(op)], [self.expression(v) for v in values])
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, args)
        raise ProgramError(f"{_excerpt(node)} is not allowed here")

    def _call(self, name: str, args: list[ast.expr]) -> Expr:
        if name in REDUCTIONS:
            if len(args) < 2:
                raise ProgramError(
                    f"{name} needs the dims it runs over, as in {name}(x, {self.scope.dims[-1]})"
                )
            return Reduce(name, self.expression(args[0]), tuple(self._dim(a) for a in args[1:]))
        if name in QUERIES:
            self._arity(name, args, 1)
            return Query(name, self._optional(args[0]) if name == "present" else self._dim(args[0]))
        if name in CASTS:
            self._arity(name, args, 1)
            return Cast(name, self.expression(args[0]))
        self._choice(name, (*FUNCTIONS, *REDUCTIONS, *QUERIES, *CASTS), "function")
        self._arity(name, args, OPS[name].arity)
        return Call(name, tuple(self.expression(a) for a in args))

    @staticmethod
    def _arity(name: str, args: list[ast.expr], needed: int) -> None:
        if len(args) != needed:
            raise ProgramError(f"{name} takes {needed} operand{'s'[: needed != 1]}, got {len(args)}")

    def _dim(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise ProgramError(f"{_excerpt(node)} is not a dim; this op has {', '.join(self.scope.dims)}")
        return self._choice(node.id, self.scope.dims, "dim")

    def _optional(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise ProgramError(f"present takes the name of an optional tensor, got {_excerpt(node)}")
        return self._choice(node.id, sorted(self.scope.optional), "optional tensor")

    @staticmethod
    def _choice(name: str, allowed: object, kind: str) -> str:
        names = [str(n) for n in allowed]  # type: ignore[attr-defined]
        if name in names:
            return name
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names) or 'none'}"
        raise ProgramError(f"unknown {kind} {name!r}; {hint}")

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
            raise ProgramError(f"`**` takes a whole exponent from 1 to {MAX_POWER}, got {power}")
        result = self._written_out(base, power)
        for _ in range(power - 1):
            result = Call("mul", (result, base))
        return result

    def _chain(self, terms: list[ast.expr], ops: list[ast.cmpop]) -> Expr:
        values = [self._written_out(self.expression(t), 2) for t in terms]
        pairs: list[Expr] = [
            Call(_BINARY[type(op)], (a, b)) for a, op, b in zip(values[:-1], ops, values[1:], strict=True)
        ]
        return self._fold("logical_and", pairs)

    @staticmethod
    def _fold(op: str, values: list[Expr]) -> Expr:
        result = values[0]
        for value in values[1:]:
            result = Call(op, (result, value))
        return result


_PYTHON = {name: node for node, name in (*_BINARY.items(), *_UNARY.items())}
_COMPARE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


def to_source(expr: Expr) -> str:
    """Print an expression in the language it was read from; parsing the text gives the tree back."""
    return ast.unparse(ast.fix_missing_locations(_syntax(expr)))


def _syntax(expr: Expr) -> ast.expr:
    match expr:
        case Name(id=name):
            return ast.Name(name, ast.Load())
        case Const(value=value):
            return ast.Constant(value)
        case Reduce(kind=kind, arg=arg, dims=dims):
            return _python_call(kind, _syntax(arg), *(ast.Name(d, ast.Load()) for d in dims))
        case Query(what=what, of=of):
            return _python_call(what, ast.Name(of, ast.Load()))
        case Cast(to=to, arg=arg):
            return _python_call(to, _syntax(arg))
        case Call(op=op, args=args):
            return _infix_syntax(op, [_syntax(a) for a in args])
    raise AssertionError(expr)


def _infix_syntax(op: str, args: list[ast.expr]) -> ast.expr:
    node = _PYTHON.get(op)
    if node is None:
        return _python_call(op, *args)
    if node in _COMPARE:
        return ast.Compare(args[0], [node()], [args[1]])
    if issubclass(node, ast.boolop):
        return ast.BoolOp(node(), args)
    if issubclass(node, ast.unaryop):
        return ast.UnaryOp(node(), args[0])
    return ast.BinOp(args[0], node(), args[1])  # type: ignore[arg-type]


def _python_call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


__all__ = ["FUNCTIONS", "ProgramError", "parse", "parse_expression", "reads", "to_source"]
