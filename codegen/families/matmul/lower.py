"""MapSpec -> MatmulOp: the factors of its product, and what is made of each element."""

from __future__ import annotations

from dataclasses import fields

from ...text import Name
from ..map.lower import lower_map
from ..map.spec import MapSpec
from .op import MatmulOp
from .product import product_of


def lower_matmul(spec: MapSpec, spec_path: str) -> MatmulOp:
    """The decisions for `spec`, which has been checked."""
    op = lower_map(spec, spec_path)
    product = product_of(next(iter(spec.by_kind.values())))
    return MatmulOp(
        **{f.name: getattr(op, f.name) for f in fields(op)},
        factors=(Name(product.left), Name(product.right)),
        roles=tuple((role, Name(dim)) for role, dim in product.dims.items()),
    )
