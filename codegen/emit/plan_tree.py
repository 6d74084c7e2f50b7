"""Checks a generated plan's syntax tree: it must declare plan classes and register their kernels, and do nothing else.

Text of a spec is never printed as code, so this finds nothing unless that fails. A plan may hold constants, calls of
the runtime's declarations, formulas in the language of conditions, and a `run` that passes its arrays on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from baracuda.runtime import SpecError

from ..conditions.parse import ConditionError, parsed
from ..lower.op import Op
from ..spec.family import families

_IMPORTS = frozenset(
    (
        "from __future__ import annotations",
        "import baracuda.runtime as rt",
    )
)
_OF_STUBS = frozenset(
    (
        "from collections.abc import Sequence",
        "from typing import Any, NamedTuple",
        "from numpy.typing import DTypeLike",
        "import baracuda.runtime as rt",
    )
)
_DECLARATIONS = frozenset(
    (
        *("Argument", "Extent", "Gradient", "Requirement", "Tuned", "field", "same_as", "table"),
        *(family.table.__name__ for family in families().values()),
        *(name for family in families().values() for name in family.declarations),
    )
)
_ENTRY_POINTS = "run_unchecked, bind, can_implement = rt.entry_points(run)"
_FIELDS = frozenset(("tuple[int, ...]", "int", "float", "bool", "str", "rt.ElementKind | str"))
_BASES = frozenset(f"rt.{family.descriptor.__name__}" for family in families().values())
_PLANS = tuple(f"rt.{family.plan.__name__}" for family in families().values())
_ERRORS = frozenset(("rt.InvalidProblem", "rt.Unsupported"))
# Where formulas stand: in all of some assignments, in some arguments of calls.
_TABLES = frozenset({"_requires"}.union(*(family.formulas for family in families().values())))
_FORMULAS: dict[str, frozenset[int | str]] = {"Requirement": frozenset((0,))}
_FORMULAS |= {name: places for of in families().values() for name, places in of.declarations.items() if places}


def check_plan(text: str, op: Op) -> None:
    """Raise SpecError unless `text` consists of the plans of `op`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise _unexpected(op, getattr(error, "lineno", 0) or 0) from None
    for line in _wrong(tree, op):
        raise _unexpected(op, line)


def check_stub(text: str) -> None:
    """Raise SpecError unless the stub consists of functions and their result tuples."""
    try:
        wrong = [node.lineno for node in ast.parse(text).body if not (_is_of_stub(node) or _is_text(node))]
    except (SyntaxError, ValueError) as error:
        wrong = [getattr(error, "lineno", 0) or 0]
    if wrong:
        place = f"_functions.pyi:{wrong[0]}"
        raise SpecError(f"the functions generated of the specs are none at {place}; please report this")


def _is_of_stub(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(body=[body], decorator_list=[]):
            return _is_text(body)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[_, ast.List(elts=fields)])):
            names = [field.elts[0] for field in fields if isinstance(field, ast.Tuple) and field.elts]
            texts = [f"({of.value!r}, Any)" for of in names if isinstance(of, ast.Constant)]
            return ast.unparse(node) == f"{name} = NamedTuple('{name}', [{', '.join(texts)}])"
        case ast.Import() | ast.ImportFrom():
            return ast.unparse(node) in _OF_STUBS
    return False


def _unexpected(op: Op, line: int) -> SpecError:
    place = f"{op.category}/{op.name}.py:{line}"
    return SpecError(f"{op.spec_path}: the plan generated of it is none at {place}; please report this")


def _wrong(tree: ast.Module, op: Op) -> Iterator[int]:
    """The lines that do not belong in a plan."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if [node.name for node in classes] != [op.descriptor, *op.plans]:
        yield 1
    names = frozenset(("__package__",))
    for node in tree.body:
        match node:
            case ast.ClassDef(body=body):
                yield from [] if _is_declared(node, op) else [node.lineno]
                yield from (inner.lineno for inner in body if not _is_of_class(inner, op, names))
            case ast.Import() | ast.ImportFrom() if ast.unparse(node) in _IMPORTS:
                pass
            case ast.Expr(value=ast.Call(func=called, args=[value], keywords=[])) if _is_data(value, names | {op.plan}):
                yield from [] if ast.unparse(called) == "rt.REGISTRY.register" else [node.lineno]
            case _:
                yield from [] if _is_text(node) else [node.lineno]
    yield from (line for line, text in _formulas(tree) if not _is_formula(text))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_declared(node: ast.ClassDef, op: Op) -> bool:
    """Whether the class has the base that a plan module gives it, and no decorator."""
    bases = list(map(ast.unparse, node.bases))
    if node.keywords or node.decorator_list or len(bases) != 1:
        return False
    if node.name == op.descriptor:
        return bases[0] in _BASES
    return bases[0] in ([f"{of}[{op.descriptor}]" for of in _PLANS] if node.name == op.plan else [op.plan])


def _is_of_class(node: ast.stmt, op: Op, module_names: frozenset[str]) -> bool:
    match node:
        case ast.AnnAssign(target=ast.Name(), annotation=kind, value=value):
            return ast.unparse(kind) in _FIELDS and (value is None or _is_data(value, module_names))
        case ast.Assign(targets=[ast.Name()], value=value):
            return _is_data(value, module_names)
        case ast.Assign(targets=[ast.Tuple()]):
            return ast.dump(node) == ast.dump(ast.parse(_ENTRY_POINTS).body[0])
        case ast.FunctionDef(name="run", args=arguments, body=[body], decorator_list=[]):
            names = "".join(f"{t.name}, " for t in op.tensors)
            expected = ast.parse(f"return self._run(({names}), workspace, stream)").body[0]
            return ast.dump(body) == ast.dump(expected) and _is_signature(arguments, op)
    return _is_text(node)


def _is_signature(arguments: ast.arguments, op: Op) -> bool:
    optional = {t.name: " = None" if t.optional else "" for t in op.tensors}
    parameters = [f"{name}: rt.Array{default}" for name, default in optional.items()]
    parameters += ["workspace: rt.Workspace = None", "stream: rt.Stream = None"]
    text = f"def run(self, *, {', '.join(parameters)}): pass"
    return ast.dump(arguments) == ast.dump(ast.parse(text).body[0].args)  # type: ignore[attr-defined]


def _is_data(node: ast.expr, names: frozenset[str]) -> bool:
    """Whether an expression consists of constants, declarations and the module's own names."""
    match node:
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Tuple(elts=elements):
            return all(_is_data(element, names) for element in elements)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="rt"), attr=name), args=arguments, keywords=keywords):
            operands = [*arguments, *(keyword.value for keyword in keywords)]
            return name in _DECLARATIONS and all(_is_data(value, names) for value in operands)
    return ast.unparse(node) in names | _ERRORS


def _formulas(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every formula, and its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _TABLES:
                yield from _texts(value)
            case ast.Call(func=ast.Attribute(attr=name), args=arguments, keywords=keywords) if name in _FORMULAS:
                operands = [*enumerate(arguments), *((keyword.arg, keyword.value) for keyword in keywords)]
                for at, value in operands:
                    if at in _FORMULAS[name]:
                        yield from _texts(value)


def _texts(node: ast.expr) -> Iterator[tuple[int, str]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant):
            yield inner.lineno, str(inner.value)


class _Anything(frozenset[str]):
    """Accepts every name: lowering has checked the names in formulas against the spec."""

    def __contains__(self, name: object) -> bool:
        return True


def _is_formula(text: str) -> bool:
    try:
        parsed(text, _Anything())
    except ConditionError:
        return False
    return True
