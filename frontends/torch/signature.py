"""What an op looks like to torch: its schema, and how a call's tensors and keywords become a descriptor.

Tensors come first, in the plan's order; then, as keywords, the fields of the descriptor that no input shows by its
shape or its presence, and the element types that the caller may choose for outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property
from typing import Any

import baracuda.runtime as rt

from .dtypes import dtype_of, kind_of

_TYPES: dict[rt.Convert, str] = {rt.as_shape: "SymInt[]", rt.as_int: "int", rt.as_float: "float", rt.as_bool: "bool"}

Tensors = Mapping[str, Any]  # by argument; None for one that is absent
Given = Mapping[str, Any]  # keywords; None or left out for the default


@dataclass(frozen=True)
class Signature:
    """A plan class as torch sees it."""

    plan: type[rt.Plan[Any]]

    @property
    def name(self) -> str:
        return self.plan.OP

    @cached_property
    def inputs(self) -> tuple[rt.Argument, ...]:
        return tuple(a for a in self.plan.ARGUMENTS.values() if a.role != "out")

    @cached_property
    def outputs(self) -> tuple[rt.Argument, ...]:
        return tuple(a for a in self.plan.ARGUMENTS.values() if a.role == "out")

    @property
    def is_functional(self) -> bool:
        """Whether it leaves its inputs as they are."""
        return not any(a.written for a in self.inputs)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Fields of the descriptor that a call must or may give."""
        shown = {e.field for e in self.plan.EXTENTS} | {a.optional for a in self.inputs}
        return tuple(name for name in self.plan.DESCRIPTOR._types if name not in shown)

    @cached_property
    def chosen(self) -> dict[str, rt.Argument]:
        """Outputs whose element type the caller may choose, by the keyword for it."""
        return {f"{a.name}_dtype": a for a in self.outputs if len(a.dtypes) > 1}

    @cached_property
    def schema(self) -> str:
        """The schema as torch.library takes it."""
        keywords = [*self._fields(), *(f"ScalarType? {keyword}=None" for keyword in self.chosen)]
        arguments = [*self._tensors(), *(["*", *keywords] if keywords else [])]
        returned = ", ".join(f"Tensor {a.name}" for a in self.outputs)
        return f"{self.name}({', '.join(arguments)}) -> ({returned})"

    def _tensors(self) -> Iterator[str]:
        required = [i for i, a in enumerate(self.inputs) if not a.optional]
        for i, argument in enumerate(self.inputs):
            mark = "?" if argument.optional else f"({chr(ord('a') + i)}!)" if argument.written else ""
            default = "=None" if argument.optional and i > required[-1] else ""
            yield f"Tensor{mark} {argument.name}{default}"

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What keywords are when they are left out, but for those that are then another field's value."""
        declared: tuple[Field[Any], ...] = fields(self.plan.DESCRIPTOR)  # type: ignore[arg-type]
        return {f.name: f.default for f in declared if isinstance(f.default, bool | int | float)}

    def _fields(self) -> Iterator[str]:
        declared: dict[str, Field[Any]] = {f.name: f for f in fields(self.plan.DESCRIPTOR)}  # type: ignore[arg-type]
        for name in self.parameters:
            kind = _TYPES[self.plan.DESCRIPTOR._types[name]]
            if name in self.defaults:
                yield f"{kind} {name}={float(self.defaults[name]) if kind == 'float' else self.defaults[name]!r}"
            else:  # or that of another field
                yield f"{kind} {name}" if declared[name].default is MISSING else f"{kind}? {name}=None"

    def named(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The inputs by name; torch leaves out the last ones that have their default."""
        missing = len(self.inputs) - len(tensors)
        return {a.name: t for a, t in zip(self.inputs, [*tensors, *[None] * missing], strict=True)}

    def fields(self, tensors: Tensors, given: Given) -> dict[str, Any]:
        """The fields of the descriptor, but for those that are left at their defaults."""
        found: dict[str, Any] = {}
        for argument in self.inputs:
            if argument.optional:  # one flag may stand for several
                found[argument.optional] = found.get(argument.optional, False) or tensors[argument.name] is not None
        for extent in self.plan.EXTENTS:
            if extent.field not in found and (tensor := tensors[extent.tensor]) is not None:
                found[extent.field] = self._shown(extent, tensor)
        values = {name: given[name] for name in self.parameters if given.get(name) is not None}
        return found | {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}

    def _shown(self, extent: rt.Extent, tensor: Any) -> Any:
        if extent.axis is None:
            return tuple(tensor.shape)
        if tensor.dim() <= extent.axis:
            needs = f"{extent.tensor!r} must have more than {extent.axis} axes, got shape {tuple(tensor.shape)}"
            raise rt.InvalidProblem(f"{self.plan.__name__}: {needs}")
        return tensor.shape[extent.axis] - extent.less

    @cached_property
    def typed(self) -> rt.Argument:
        """The input that shows the descriptor's element: the first that can hold no other."""
        return next(a for a in self.inputs if a.dtypes == ("T",) and not a.optional)

    def element(self, tensors: Tensors) -> rt.ElementKind:
        return kind_of(tensors[self.typed.name].dtype)

    def dtypes(self, element: rt.ElementKind, given: Given) -> dict[str, Any]:
        """The torch.dtype of each output: the one asked for or the usual one."""
        usual = {a.name: dtype_of(a.elements(element)[0]) for a in self.outputs}
        return usual | {a.name: given[keyword] for keyword, a in self.chosen.items() if given.get(keyword)}
