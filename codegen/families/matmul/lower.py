"""MapSpec -> MatmulOp: the factors of its products, and what is made of each element."""

from __future__ import annotations

from dataclasses import fields, replace

from ...conditions.parse import read_condition
from ...text import Name
from ..map.kinds import kind_groups
from ..map.lower import Lowering, lower_walks
from ..map.op import Body, MapOp
from ..map.passes import Pass
from ..map.spec import MapSpec
from .made import fused, made
from .op import MatmulOp
from .passes import passes
from .product import Product
from .sinks import Sinks

_PHASES = ("sinks", "late_sinks")


def lower_matmul(spec: MapSpec, spec_path: str) -> MatmulOp:
    """The decisions for `spec`, which has been checked."""
    op = lower_walks(spec, spec_path, kind_groups(spec, passes), _lowered)
    if isinstance(op, MatmulOp) and not op.passes:
        return op
    dims = tuple(dict.fromkeys(dim for of in (op, *op.passes) for dim in of.dims))  # those of parts are of some
    op = replace(op, dims=dims)
    chunks = tuple((Name(dim), read_condition(of, spec.descriptor)) for dim, of in spec.chunks.items())
    whole = _of_product(op, None, chunks)
    if spec.kinds or not (of := made(spec, passes(spec))):
        return whole
    factor, product = whole.passes
    assert isinstance(product, MatmulOp)
    factor = replace(factor, makers=(1, 3))
    return replace(whole, passes=(factor, product, replace(fused(factor, product, of), number=3)))


def _lowered(op: MapOp, of: Pass) -> MapOp:
    """A pass: a product, or one of a map."""
    if not isinstance(of.product, Product):
        return op
    lowered = _of_product(op, of.product)
    if not isinstance(of.product.sinks, Sinks):
        return lowered
    bodies, kinds = _sunk(of, of.product.sinks)
    return replace(lowered, part=Name(of.product.sinks.part), sinks=bodies, kinds={**op.kinds, **kinds})


def _sunk(of: Pass, sinks: Sinks) -> tuple[tuple[Body, ...], dict[str, str]]:
    """The terms of the reductions of each phase, which know what was reduced before."""
    lowering = Lowering(of.spec, of.parts)
    known, bodies = [line for line in lowering.sums if line.name not in sinks.names], list[Body]()
    for name, phase in zip(_PHASES, sinks.phases, strict=False):
        lines = [line for line in lowering.sums if line.name in phase]
        bodies.append(lowering.body(name, [], sums=tuple(lines), known=tuple(known)))
        known += lines
    return tuple(bodies), lowering.kinds


def _span(product: Product) -> tuple[Name, Name, bool] | None:
    if product.span is None:
        return None
    of = next(role for role, dim in product.roles if dim == product.span.dim)
    return Name(product.span.ends), Name(of), product.span.segments


def _weights(product: Product) -> tuple[tuple[Name, tuple[tuple[str, int], ...]], ...]:
    roles = {dim: role for role, dim in product.roles}
    return tuple((Name(of.tensor), tuple((roles[dim], n) for dim, n in of.axes)) for of in product.weights)


def _of_product(op: MapOp, product: Product | None, chunks: tuple[tuple[Name, str], ...] = ()) -> MatmulOp:
    """The op of a product, or of several passes."""
    return MatmulOp(
        **{f.name: getattr(op, f.name) for f in fields(MapOp)} | {"bounds": ()},
        chunks=chunks,
        factors=(Name(product.left), Name(product.right)) if product else (),
        second=Name(product.second) if product and product.second else None,
        roles=tuple((role, Name(dim)) for role, dim in product.roles) if product else (),
        span=_span(product) if product else None,
        weights=_weights(product) if product else (),
        part=None,
        sinks=(),
    )
