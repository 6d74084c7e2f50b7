"""The matmul family: products of two arrays each, and a program that makes outputs of their elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

from baracuda.runtime import MapDescriptor, MatmulPlan, matmul_kernels

from ...conditions.parse import fields_of
from ...program import Expr, Line, ProgramError, Reduce, parse
from ...program.tree import walk
from ...spec.checks import FIRST, LAST, PROGRAM, READ, everywhere
from ...spec.family import Denied
from ...spec.parts import Drawn, RangeSpec
from ...spec.promises import BATCH, MACHINES
from ...spec.scope import kinds_of, scope_of
from ..map import kind_rules as kinds
from ..map import rules as map_rules
from ..map.batches import of_whole_batches, reductions_behind
from ..map.family import MapFamily
from ..map.program import Parts, parts_of
from ..map.spec import MapSpec
from . import rules
from .claims import reads_like_a_product
from .declared import declares
from .lower import lower_matmul
from .passes import parts_with_factors, passes, with_factors
from .product import ROLES, Product, factors_of, product_of, products_of

# Batch, rows, columns and depth: less than a tile of any kernel, more, several, odd, one, none.
_CASES = (
    (2, 5, 7, 3),
    (1, 130, 264, 72),
    (1, 16, 200, 136),
    (2, 40, 24, 264),
    (1, 300, 520, 200),
    (1, 1, 1, 1),
    (2, 33, 129, 65),
    (1, 3, 4, 0),
    (1, 0, 4, 8),
    (1, 4, 0, 8),
)


_EXACT = ("max", "min", "any", "all")  # reductions whose result no order changes


class MatmulFamily(MapFamily):
    """Rows are what is independent."""

    claims = staticmethod(reads_like_a_product)

    @staticmethod
    def pulled(spec: MapSpec) -> frozenset[str]:
        """None: derivatives of products are sums of products."""
        return frozenset()

    @staticmethod
    def lines(spec: MapSpec) -> tuple[Line, ...]:
        scope = scope_of(spec)
        lines = parse(spec.program, scope)
        return with_factors(lines, {*scope.values, *scope.dims, *(line.name for line in lines)})

    @staticmethod
    def multiplied(spec: MapSpec) -> frozenset[Expr]:
        parts = parts_of(MatmulFamily.lines(spec), tuple(spec.dims), scope_of(spec).values)
        sums = {part for line in parts.lines for part in walk(line.expr) if factors_of(part)}
        return frozenset(part for part in sums if _is_product(part, spec, parts))

    @staticmethod
    def batch_of(spec: MapSpec) -> str | None:
        try:
            dim = spec.dims[_batch_dim(next(iter(spec.by_kind.values())))]
        except ProgramError:  # reported where the program is
            return spec.tests.batch
        return spec.tests.batch or (dim.of if dim.of in spec.descriptor else None)

    def notes(self, spec: MapSpec) -> Iterator[tuple[int, str]]:
        """None: what is no product of this family is a sum beside one."""
        yield from ()

    def batch_dim(self, spec: MapSpec) -> str:
        return _batch_dim(spec)

    def rests_on_batch(self, spec: MapSpec) -> Iterator[Denied]:
        """What is summed over the batch. Sums of floats by matrix instructions differ between machines."""
        parts, batch = parts_with_factors(spec), _batch_dim(spec)
        whole = of_whole_batches(parts.lines, passes(spec), frozenset({batch}))
        for name, sums in _sums(spec, parts):
            if sums:
                yield name, MACHINES, f"matrix instructions differ between machines; drop {MACHINES}"
            if not whole.isdisjoint(sums):
                yield name, BATCH, f"{name!r} rests on a sum that depends on how large the batch is; drop {BATCH}"

    def has_a_price(self, spec: MapSpec) -> Iterator[Denied]:
        """What is summed by a map."""
        parts = parts_with_factors(spec)
        products, batch = products_of(spec, parts), _batch_dim(spec)
        # A map sums what chunks of the batch keep in one order, however large the batch is.
        is_in_chunks = spec.dims[batch].of not in fields_of(spec.chunks.get(batch, spec.dims[batch].of))
        for name, sums in _sums(spec, parts):
            fixed = {*products, *(n for n in sums if is_in_chunks and batch in parts.dims[n])}
            fixed |= {n for n, expr in sums.items() if expr.kind in _EXACT}
            if not fixed.issuperset(sums):
                yield name, BATCH, "an order of additions that is the same for all batches costs speed"

    @staticmethod
    def usual_cases(spec: MapSpec) -> Iterator[dict[str, Any]]:
        for sizes in _CASES:
            yield _extents(spec, sizes)

    @staticmethod
    def usual_draw(spec: MapSpec) -> dict[str, Drawn]:
        return {name: RangeSpec(low=0, high=high) for name, high in _extents(spec, (3, 300, 300, 200)).items()}


def _sums(spec: MapSpec, parts: Parts) -> Iterator[tuple[str, dict[str, Reduce]]]:
    """The outputs, each with the reductions to other numbers than ints that it rests on."""
    lines, sorts = {line.name: line.expr for line in parts.lines}, kinds_of(spec, parts.lines)
    for name in spec.outputs:
        yield name, {n: expr for n, expr in reductions_behind(name, lines).items() if sorts[n] != "int"}


def _is_product(expr: Expr, spec: MapSpec, parts: Parts) -> bool:
    try:
        return bool(product_of(expr, spec, parts))
    except ProgramError:
        return False


def _first_product(spec: MapSpec) -> dict[str, str]:
    """The dims of the first product that is computed, by their roles, rows and columns in the order of dims."""
    dims = next(of.product.dims for of in passes(spec) if isinstance(of.product, Product))
    rows, columns = sorted((dims["rows"], dims["columns"]), key=list(spec.dims).index)
    return dims | {"rows": rows, "columns": columns}


def _batch_dim(spec: MapSpec) -> str:
    return _first_product(spec)["rows"]


def _extents(spec: MapSpec, sizes: tuple[int, ...]) -> dict[str, int]:
    """The fields with an extent each: batch, rows, columns and depth of the first product, others as these in turn."""
    dims = _first_product(next(iter(spec.by_kind.values())))
    roles = [spec.dims[dims[role]].of if role in dims else "" for role in ROLES]
    others = dict.fromkeys(dim.of for dim in spec.dims.values() if dim.of not in roles)
    extents = [*zip(roles, sizes, strict=True), *zip(others, cycle(sizes[1:]), strict=False)]
    return {field: size for field, size in extents if field in spec.descriptor}


FAMILY = MatmulFamily(
    name="matmul",
    doc="a program on the elements of products of two arrays",
    model=MapSpec,
    rules=(
        *(*FIRST, map_rules.dims, rules.sizes, everywhere.conditions, rules.own_memory, map_rules.tensors),
        *(kinds.table, *(kinds.each(rule) for rule in PROGRAM), rules.chunks, *READ, *LAST),
        *(kinds.each(rules.program), rules.aliasing, kinds.each(rules.contradictions), kinds.sorts),
        everywhere.cases,
    ),
    lower=lower_matmul,
    templates=("map.cu.jinja", "plan.py.jinja"),
    plan=MatmulPlan,
    table=matmul_kernels,
    declares=declares,
    declarations={"MapPass": frozenset(), "MatmulPass": frozenset(), "MadePass": frozenset()},
    descriptor=MapDescriptor,
    formulas=frozenset({"_dims", "_chunks"}),
)
