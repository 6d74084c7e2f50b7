"""MapSpec -> MatmulOp: the factors of its products, and what is made of each element."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace

from ...conditions.parse import read_condition
from ...program import Line
from ...text import Name
from ..map.kinds import kind_groups
from ..map.lower import Lowering, lower_walks
from ..map.op import Body, MapOp, joined
from ..map.passes import Pass
from ..map.spec import MapSpec
from ..map.uniform import Uniforms
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


def _lowered(op: MapOp, of_kinds: Mapping[str, Pass]) -> MapOp:
    """A pass: a product, or one of a map."""
    of = next(iter(of_kinds.values()))
    if not isinstance(of.product, Product):
        return op
    lowered = _of_product(op, of.product)
    return _sunk(lowered, of_kinds, of.product.sinks) if isinstance(of.product.sinks, Sinks) else lowered


def _sunk(op: MatmulOp, of_kinds: Mapping[str, Pass], sinks: Sinks) -> MatmulOp:
    """The pass of a product with the terms of the reductions of each phase, which know what was reduced before."""
    first = next(iter(of_kinds.values()))
    taken = {name for of in of_kinds.values() for name in (*of.parts.dims, *of.spec.descriptor)}
    uniforms = Uniforms(taken, one_program=not op.kinds_offered)
    each = {kind: Lowering(of.spec, of.parts, first.parts, uniforms) for kind, of in of_kinds.items()}
    own = first.spec.outputs
    stored = {dim: [name for name, t in own.items() if dim in t.over] for dim in (sinks.part, sinks.band)}
    elements = [name for name in own if name not in stored[sinks.part] + stored[sinks.band]]

    def body(name: str, outputs: list[str], sums: tuple[str, ...], known: tuple[str, ...]) -> Body:
        bodies = {kind: of.body(name, outputs, _lines(of, sums), _lines(of, known)) for kind, of in each.items()}
        of_one = next(iter(bodies.values()))
        return joined({Name(kind): of for kind, of in bodies.items()}) if op.kinds_offered else of_one

    known: tuple[str, ...] = tuple(x.name for x in op.sums if x.name not in sinks.names)
    bodies = list[Body]()
    for name, phase in zip(_PHASES, sinks.phases, strict=False):
        bodies.append(body(name, [] if bodies else elements, phase, known))
        known += phase
    columns = tuple(name for name in known if name not in sinks.bands)
    bands = (body("bands", stored[sinks.band], (), sinks.bands),) if sinks.bands else ()
    kinds = {name: sort for of in each.values() for name, sort in of.kinds.items()}
    return replace(
        op,
        part=Name(sinks.part) if sinks.part else None,
        band=Name(sinks.band) if sinks.band else None,
        sinks=(*bodies, *bands),
        banded=tuple(x.slot for x in op.sums if x.name in sinks.bands),
        epilogue=body("epilogue", stored[sinks.part], (), columns),
        kinds={**op.kinds, **kinds},
    )


def _lines(of: Lowering, wanted: Collection[str]) -> tuple[Line, ...]:
    return tuple(line for line in of.sums if line.name in wanted)


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
        band=None,
        sinks=(),
        banded=(),
    )
