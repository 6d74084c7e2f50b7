"""Which fields of the descriptor follow from the shapes that a body gives its inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from baracuda.runtime import Extent


def shown(name: str, shape: str) -> Iterator[Extent]:
    """Fields that a tuple-valued shape has alone or plus or minus a number."""
    tree = ast.parse(shape.strip(), mode="eval").body
    for axis, part in enumerate(tree.elts if isinstance(tree, ast.Tuple) else ()):
        match part:
            case ast.Name(id=field):
                yield Extent(field, name, axis)
            case ast.BinOp(ast.Name(id=field), ast.Add(), ast.Constant(value=int(surplus))):
                yield Extent(field, name, axis, less=surplus)
            case ast.BinOp(ast.Name(id=field), ast.Sub(), ast.Constant(value=int(surplus))):
                yield Extent(field, name, axis, less=-surplus)
