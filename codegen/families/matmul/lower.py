"""MapSpec -> MatmulOp: the factors of its products, and what is made of each element."""

from __future__ import annotations

from dataclasses import fields, replace

from ...conditions.parse import read_condition
from ...text import Name
from ..map.kinds import kind_groups
from ..map.lower import lower_walks
from ..map.op import MapOp
from ..map.passes import Pass
from ..map.spec import MapSpec
from .made import fused, made
from .op import MatmulOp
from .passes import passes
from .product import Product


def lower_matmul(spec: MapSpec, spec_path: str) -> MatmulOp:
    """The decisions for `spec`, which has been checked."""
    op = lower_walks(spec, spec_path, kind_groups(spec, passes), _lowered)
    if isinstance(op, MatmulOp) and not op.passes:
        return op
    chunks = tuple((Name(dim), read_condition(of, spec.descriptor)) for dim, of in spec.chunks.items())
    whole = _of_product(op, None, chunks)
    if spec.kinds or not (roles := made(spec, passes(spec))):
        return whole
    factor, product = whole.passes
    assert isinstance(product, MatmulOp)
    return replace(whole, passes=(factor, product, replace(fused(factor, product, roles), number=3)))


def _lowered(op: MapOp, of: Pass) -> MapOp:
    """A pass: a product, or one of a map."""
    return _of_product(op, of.product) if isinstance(of.product, Product) else op


def _span(product: Product) -> tuple[Name, Name, bool] | None:
    if product.span is None:
        return None
    of = next(role for role, dim in product.roles if dim == product.span.dim)
    return Name(product.span.ends), Name(of), product.span.segments


def _of_product(op: MapOp, product: Product | None, chunks: tuple[tuple[Name, str], ...] = ()) -> MatmulOp:
    """The op of a product, or of several passes."""
    return MatmulOp(
        **{f.name: getattr(op, f.name) for f in fields(MapOp)},
        chunks=chunks,
        factors=(Name(product.left), Name(product.right)) if product else (),
        roles=tuple((role, Name(dim)) for role, dim in product.roles) if product else (),
        span=_span(product) if product else None,
    )
