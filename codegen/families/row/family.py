"""The row family: a program that reduces along rows, and last of all down columns."""

from __future__ import annotations

from collections.abc import Iterator

from baracuda.runtime import Extent, RowDescriptor, RowPlan, row_kernels
from baracuda.runtime.families.row.source import row_source

from ...spec.checks import FIRST, LAST, PROGRAM, READ, everywhere
from ...spec.default_conditions import of_axis
from ...spec.family import Data, Denied
from ...spec.parts import Requirement
from ...spec.promises import BATCH
from ..programs import ProgramFamily
from . import rules
from .cases import usual_cases
from .declared import declares
from .lower import lower_row
from .program import row_lines
from .skeleton import SKELETON, SPILLS
from .spec import RowSpec

_OF_ROWS = {"anyOf": [{"const": "rest"}, {"type": "object", "required": ["axes"]}]}
_SOME_OF_ROWS = {"not": {"additionalProperties": {"not": _OF_ROWS}}}


class RowFamily(ProgramFamily):
    """Rows are what is independent, and their dims share out the axes of one shape."""

    usual_cases = staticmethod(usual_cases)
    lines = staticmethod(row_lines)

    @staticmethod
    def claims(data: Data) -> bool:
        dims = data.get("dims")
        values = dims.values() if isinstance(dims, dict) else ()
        return any(value == "rest" or (isinstance(value, dict) and "axes" in value) for value in values)

    @staticmethod
    def conditions(spec: RowSpec, said: set[str]) -> Iterator[Requirement]:
        for dim in spec.dims.values():
            yield from of_axis(dim, said)

    def batch_dim(self, spec: RowSpec) -> str:
        return spec.rows

    def rests_on_batch(self, spec: RowSpec) -> Iterator[Denied]:
        for name, output in spec.outputs.items():
            if spec.rows not in output.dims:
                text = f"{name!r} has no {spec.rows}: it depends on how many there are; drop {BATCH}"
                yield name, BATCH, text

    @staticmethod
    def pulled(spec: RowSpec) -> frozenset[str]:
        return frozenset({*spec.dims} - {spec.rows})

    @staticmethod
    def shown(spec: RowSpec, name: str) -> Iterator[Extent]:
        if set(spec.inputs[name].dims) == set(spec.dims):
            yield Extent(next(iter(spec.dims.values())).of, name)


FAMILY = RowFamily(
    name="row",
    doc="a program that reduces along rows and last of all down columns",
    model=RowSpec,
    rules=(
        *(*FIRST, rules.dims, everywhere.conditions, rules.tensors),
        *(*PROGRAM, *READ, *LAST, rules.contradictions, rules.arch, everywhere.cases),
    ),
    lower=lower_row,
    templates=("row.cu.jinja", "plan.py.jinja"),
    plan=RowPlan,
    table=row_kernels,
    declares=declares,
    source=row_source,
    descriptor=RowDescriptor,
    formulas=frozenset({"_cols"}),
    claim={"required": ["dims"], "properties": {"dims": _SOME_OF_ROWS}},
    all_dims_share=True,
    skeleton=SKELETON,
    spills=SPILLS,
)
