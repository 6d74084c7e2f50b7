"""The matmul family: a product of two arrays, and a program that makes outputs of each of its elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from baracuda.runtime import MapDescriptor, MatmulPlan, matmul_kernels

from ...program import ProgramError
from ...spec.checks import FIRST, LAST, PROGRAM, READ, everywhere
from ...spec.family import Denied
from ...spec.parts import Drawn, RangeSpec
from ...spec.promises import MACHINES
from ..map import kind_rules as kinds
from ..map import rules as map_rules
from ..map.family import MapFamily
from ..map.spec import MapSpec
from . import rules
from .claims import reads_like_a_product
from .declared import declares
from .lower import lower_matmul
from .product import ROLES, product_of

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
)


class MatmulFamily(MapFamily):
    """Rows are what is independent."""

    claims = staticmethod(reads_like_a_product)

    @staticmethod
    def batch_of(spec: MapSpec) -> str | None:
        try:
            dim = spec.dims[product_of(next(iter(spec.by_kind.values()))).dims["rows"]]
        except ProgramError:  # reported where the program is
            return spec.tests.batch
        return spec.tests.batch or (dim.of if dim.of in spec.descriptor else None)

    def batch_dim(self, spec: MapSpec) -> str:
        return product_of(spec).dims["rows"]

    def rests_on_batch(self, spec: MapSpec) -> Iterator[Denied]:
        """Nothing does. Matrix instructions add up differently on each architecture."""
        for name in spec.outputs:
            yield name, MACHINES, f"matrix instructions differ between machines; drop {MACHINES}"

    @staticmethod
    def usual_cases(spec: MapSpec) -> Iterator[dict[str, Any]]:
        for sizes in _CASES:
            yield {name: size for name, size in zip(_fields(spec), sizes, strict=True) if name}

    @staticmethod
    def usual_draw(spec: MapSpec) -> dict[str, Drawn]:
        most = (3, 300, 300, 200)
        return {name: RangeSpec(low=0, high=high) for name, high in zip(_fields(spec), most, strict=True) if name}


def _fields(spec: MapSpec) -> tuple[str, ...]:
    """The fields that are the extents of batch, rows, columns and depth; "" for those that are no field."""
    dims = product_of(next(iter(spec.by_kind.values()))).dims
    fields = (spec.dims[dims[role]].of if role in dims else "" for role in ROLES)
    return tuple(field if field in spec.descriptor else "" for field in fields)


FAMILY = MatmulFamily(
    name="matmul",
    doc="a program on each element of a product of two arrays",
    model=MapSpec,
    rules=(
        *(*FIRST, map_rules.dims, rules.sizes, everywhere.conditions, map_rules.own_memory, map_rules.tensors),
        *(kinds.table, *(kinds.each(rule) for rule in PROGRAM), *READ, *LAST),
        *(kinds.each(rules.program), rules.factors, kinds.each(map_rules.contradictions), kinds.sorts),
        everywhere.cases,
    ),
    lower=lower_matmul,
    templates=("map.cu.jinja", "plan.py.jinja"),
    plan=MatmulPlan,
    table=matmul_kernels,
    declares=declares,
    descriptor=MapDescriptor,
    formulas=frozenset({"_dims"}),
)
