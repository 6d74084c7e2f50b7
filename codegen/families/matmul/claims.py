"""Which files that name no family read like matrix products. The data is the author's and may be malformed anywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from baracuda.runtime.families.matmul.schedules import FLOATS_OF_A_BYTE, SCHEDULES

from ...program.ops import REDUCTIONS
from ...spec.family import Data
from .product import kind_of_factor

# Of ops; 8-bit floats are of inputs alone, as nothing is computed in them.
ELEMENTS = tuple(dict.fromkeys(tag for _, tags, _ in SCHEDULES for tag in tags if tag not in FLOATS_OF_A_BYTE))


def reads_like_a_product(data: Data) -> bool:
    """Whether each program has a matrix product, and none reads at computed places."""
    return _is_plain(data) and all(_Program(_mapping(data, "inputs")).has_product(text) for text in _programs(data))


class _Program:
    """The names of a program that may be factors, and the dims along which each name varies."""

    def __init__(self, inputs: Mapping[Any, Any]) -> None:
        self.over = {name: {*_dims(inputs, name)} for name in inputs}
        of = {name: _mapping(inputs, name) for name in inputs}
        self.factors = {name: kind_of_factor(_dtypes(data)) for name, data in of.items() if "optional" not in data}

    def has_product(self, text: str) -> bool:
        try:
            lines = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        nodes = [node for line in lines for node in ast.walk(line)]
        if any(isinstance(node, ast.Subscript) for node in nodes):
            return False
        found = False
        for line in lines:
            found = found or any(map(self._is_product, ast.walk(line)))
            match line:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.over[name] = self._varies(value)
                    self.factors |= {name: ("T",)} if _called(value) == "T" else {}
        return found

    def _is_product(self, node: ast.AST) -> bool:
        """Whether each factor has one dim of its own, and they share the depth and perhaps a batch."""
        match node:
            case ast.Call(ast.Name("sum"), [ast.BinOp(a, ast.Mult(), b), ast.Name(depth)]):
                of_a, of_b = self._varies(a), self._varies(b)
                own, both = (of_a - of_b, of_b - of_a), of_a & of_b
                is_shaped = depth in both and all(len(dims) == 1 for dims in own) and len(both) <= 2
                kinds = {self._kind_of(a), self._kind_of(b)}
                return is_shaped and len(kinds) == 1 and None not in kinds
        return False

    def _kind_of(self, node: ast.expr) -> tuple[str, ...] | None:
        """What a factor is multiplied with; None if it is none."""
        if isinstance(node, ast.Name):
            return self.factors.get(node.id)
        return ("T",) if _called(node) == "T" else None

    def _varies(self, node: ast.AST) -> set[str]:
        if isinstance(node, ast.Name):
            return self.over.get(node.id, set())
        over = set[str]().union(*map(self._varies, ast.iter_child_nodes(node)))
        reduced = node.args[1:] if isinstance(node, ast.Call) and _called(node) in REDUCTIONS else ()
        return over - {dim.id for dim in reduced if isinstance(dim, ast.Name)}


def _called(node: ast.AST) -> str:
    """The function that a call names."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _is_plain(data: Data) -> bool:
    """Whether dims are one axis each, and elements are those that kernels multiply."""
    fields, dims, dtypes = _mapping(data, "descriptor"), _mapping(data, "dims"), data.get("dtypes", [])
    sizes = [dim.get("of") if isinstance(dim, Mapping) else dim for dim in dims.values()]
    shared = any(isinstance(dim, Mapping) and "axes" in dim for dim in dims.values()) or "rest" in sizes
    shapes = {name for name in fields if _mapping(fields, name).get("type", fields[name]) == "shape"}
    known = isinstance(dtypes, list) and all(dtype in ELEMENTS for dtype in dtypes)
    return bool(sizes) and not shared and known and not any(size in shapes for size in sizes if isinstance(size, str))


def _programs(data: Data) -> Iterator[str]:
    """The text of the program, or of each kind with what all share."""
    shared, kinds = data.get("program"), _mapping(data, "kinds")
    texts = [of.get("program") if isinstance(of, Mapping) else of for of in kinds.values()]
    for parts in [[text, shared] for text in texts] or [[shared]]:
        yield "\n".join(part for part in parts if isinstance(part, str))


def _mapping(data: Mapping[Any, Any], key: object) -> Mapping[Any, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _dtypes(tensor: Mapping[Any, Any]) -> tuple[str, ...]:
    given = tensor.get("dtype", "T")
    return tuple(map(str, given)) if isinstance(given, list) else (str(given),)


def _dims(tensors: Mapping[Any, Any], name: object) -> tuple[str, ...]:
    dims = _mapping(tensors, name).get("dims")
    return tuple(map(str, dims)) if isinstance(dims, list) else ()
