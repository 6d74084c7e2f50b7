"""Plan classes made from lowered ops, without printing or executing Python.

`compile` and `check` use them to select kernels and list their sources for specs that nobody has chosen to trust. They
have the members that the generated module would declare; formulas are evaluated by walking their trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import baracuda.runtime as rt

from ..conditions.values import meaning
from ..lower.op import DescriptorField, Op
from .declared import Declared, annotation, declared_of
from .output import PACKAGE

Rows = tuple[rt.Registered, ...]
MAX_EVALUATED = 14_000_000  # characters of expressions, by one plan class: about a second; attention takes 12 million


def rows_of(op: Op, text: str, package: str = PACKAGE) -> Rows:
    """The rows of the kernel table for `op`, generated with `text` as its kernels into `package`."""
    declared = declared_of(op)
    return tuple(declared.family.table(plan_of(op, (), package), **declared.table, inline=text))


def plan_of(op: Op, rows: Rows, package: str = PACKAGE) -> type[Any]:
    """The plan class of `op`, whose kernels are `rows`."""
    declared, module = declared_of(op), f"{package}.{op.category}.{op.name}"

    def kernels(cls: type[Any], element: rt.ElementKind | str | None = None) -> Rows:
        return tuple(row for row in rows if element is None or row.sku.element == element)

    own = {
        "__module__": module,
        "__doc__": str(op.doc),
        "DESCRIPTOR": _descriptor(op, declared, module),
        "kernels": classmethod(kernels),
    }
    return type(str(op.plan), (declared.family.plan,), {**declared.plan, **own})


class TooMuch(rt.BaracudaError):
    """Evaluation exceeded the budget of a plan class."""


class _Evaluator:
    """Evaluates formulas by walking their trees, within a budget of characters: it measures time alike everywhere."""

    def __init__(self, plan: str) -> None:
        self.plan, self.left = plan, MAX_EVALUATED

    def __call__(self, text: str, values: Mapping[str, Any]) -> Any:
        self.left -= len(text)
        if self.left < 0:
            raise TooMuch(f"{self.plan}: needs more than {MAX_EVALUATED} characters of expressions evaluated")
        return meaning(text)(values)


def _descriptor(op: Op, declared: Declared, module: str) -> type[Any]:
    own = {
        "__module__": __name__,  # one that is imported, as dataclasses need it
        "__annotations__": {str(f.name): str(annotation(f)) for f in op.fields},
        "_evaluate": staticmethod(_Evaluator(op.plan)),
    }
    fields = {str(f.name): rt.field(str(f.doc), **_default(f)) for f in op.fields}
    made = type(str(op.descriptor), (declared.family.descriptor,), {**declared.descriptor, **own, **fields})
    made.__module__ = module
    return made


def _default(field: DescriptorField) -> dict[str, Any]:
    if field.same_as:
        return {"default": rt.same_as(field.same_as)}
    return {} if field.default is None else {"default": field.default}
