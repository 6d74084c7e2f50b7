"""The list family: a program on each element of the arrays of some lists."""

from __future__ import annotations

from baracuda.runtime import ListPlan, MapDescriptor, map_kernels

from ...spec.checks import FIRST, LAST, PROGRAM, READ, everywhere
from ...spec.family import Data
from ..map import kind_rules as kinds
from ..map import rules as map_rules
from ..map.family import MapFamily
from . import rules
from .declared import declares
from .lower import lower_list
from .spec import ListSpec


class ListFamily(MapFamily):
    """A map over elements that lie in many arrays. A file has to name it."""

    @staticmethod
    def claims(data: Data) -> bool:
        return False


FAMILY = ListFamily(
    name="list",
    doc="a program on each element of the arrays of some lists",
    model=ListSpec,
    rules=(
        *(*FIRST, map_rules.dims, rules.dims, everywhere.conditions, map_rules.tensors, rules.tensors, kinds.table),
        *(*PROGRAM, *READ, rules.program, rules.passes),
        *(*LAST, map_rules.contradictions, map_rules.outside, everywhere.cases),
    ),
    lower=lower_list,
    templates=("map.cu.jinja", "plan.py.jinja"),
    plan=ListPlan,
    table=map_kernels,
    declares=declares,
    descriptor=MapDescriptor,
)
