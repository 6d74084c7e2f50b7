"""The body family: kernels written by hand in a header; everything around them is declared."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from baracuda.runtime import BodyPlan, Extent, body_kernels

from ...spec.checks import FIRST, LAST, everywhere
from ...spec.family import Data, Family
from ...spec.promises import BATCH, MACHINES
from . import rules
from .declared import declares
from .lower import lower_body
from .spec import BodySpec

_FLOATS = ["f32", "f16", "bf16", "f64"]


class BodyFamily(Family):
    """Of kernels by hand, what cannot be derived is left to tests."""

    @staticmethod
    def claims(data: Data) -> bool:
        return "body" in data or "kernels" in data

    @staticmethod
    def filled(data: dict[str, Any]) -> dict[str, Any]:
        """What each schedule is for: the least architecture that has a header, and every element type."""
        body, schedules = data.get("body"), data.get("schedules")
        if not isinstance(body, dict) or not body or not isinstance(schedules, list):
            return data
        usual = {"arch": min(body, key=str), "dtypes": data.get("dtypes", _FLOATS)}
        return {**data, "schedules": [{**usual, **row} if isinstance(row, dict) else row for row in schedules]}

    @staticmethod
    def extents(spec: BodySpec) -> set[str]:
        parts = (part.strip() for tensor in spec.tensors.values() for part in tensor.shape.strip("() ").split(","))
        return {*spec.descriptor}.intersection(parts)

    def cannot_promise(self, spec: BodySpec) -> set[tuple[str, str]]:
        """Only tests can tell; what begins with the batch is expected not to depend on it."""
        first = {name: tensor.shape.strip("() ").split(",")[0].strip() for name, tensor in spec.outputs.items()}
        apart = {(name, BATCH) for name in first if spec.tests.batch is None or first[name] != spec.tests.batch}
        return apart | {(name, MACHINES) for name in first}

    @staticmethod
    def shown(spec: BodySpec, name: str) -> Iterator[Extent]:
        """Fields that a tuple-valued shape has alone or plus or minus a number."""
        tree = ast.parse(spec.inputs[name].shape.strip(), mode="eval").body
        for axis, part in enumerate(tree.elts if isinstance(tree, ast.Tuple) else ()):
            match part:
                case ast.Name(id=field):
                    yield Extent(field, name, axis)
                case ast.BinOp(ast.Name(id=field), ast.Add(), ast.Constant(value=int(surplus))):
                    yield Extent(field, name, axis, less=surplus)
                case ast.BinOp(ast.Name(id=field), ast.Sub(), ast.Constant(value=int(surplus))):
                    yield Extent(field, name, axis, less=-surplus)


FAMILY = BodyFamily(
    name="body",
    doc="kernels written by hand in a header",
    model=BodySpec,
    rules=(*FIRST, everywhere.conditions, everywhere.tensors, *rules.RULES, *LAST, everywhere.cases),
    lower=lower_body,
    templates=("body.cu.jinja", "plan.py.jinja"),
    plan=BodyPlan,
    table=body_kernels,
    declares=declares,
    declarations={
        "BodyKernel": frozenset((1, "shared", "threads", "when")),
        "BodySchedule": frozenset(("fits",)),
        "Box": frozenset((1,)),
        "Scratch": frozenset((2,)),
    },
    formulas=frozenset({"SHAPES", "SETTINGS", "TERMS"}),
    claim={"anyOf": [{"required": ["body"]}, {"required": ["kernels"]}]},
)
