"""Plan classes made from lowered ops, without printing or executing Python.

`compile` and `check` use them to select kernels and list their sources for specs that nobody has chosen to trust. They
have the members that the generated module would declare; formulas are evaluated by walking their trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import baracuda.runtime as rt

from ..conditions.values import meaning
from ..lower.op import DescriptorField, Op
from .declared import Declared, annotation, declared_of
from .output import PACKAGE

Rows = tuple[rt.Registered, ...]
_MISSING = object()
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


class _Fields(rt.Descriptor):
    """What a dataclass with these fields would do, without compiling code from their names."""

    _defaults: ClassVar[dict[str, Any]]

    @classmethod
    def _make(cls) -> None:
        """Nothing: what a dataclass has is here."""

    def __init__(self, **keywords: Any) -> None:
        values = {**self._defaults, **keywords}
        if unknown := [name for name in values if name not in self._defaults]:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]!r}")
        if missing := [name for name, value in values.items() if value is _MISSING]:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self._defaults])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._defaults)
        return f"{type(self).__name__}({fields})"


def _descriptor(op: Op, declared: Declared, module: str) -> type[Any]:
    own = {
        "__module__": module,
        "__annotations__": {str(f.name): str(annotation(f)) for f in op.fields},
        "_defaults": {str(f.name): _default(f) for f in op.fields} | {"element": _MISSING},
        "_evaluate": staticmethod(_Evaluator(op.plan)),
    }
    return type(str(op.descriptor), (_Fields, declared.family.descriptor), {**declared.descriptor, **own})


def _default(field: DescriptorField) -> Any:
    if field.same_as:
        return rt.same_as(field.same_as)
    return _MISSING if field.default is None else field.default
