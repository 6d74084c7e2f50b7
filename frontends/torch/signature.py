"""An op's torch schema and dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from functools import cached_property
from typing import Any

import baracuda.runtime as rt
from baracuda.ops import signature as plain

from .dtypes import dtype_of, kind_of

_TYPES: dict[rt.Convert, str] = {rt.as_shape: "SymInt[]", rt.as_int: "int", rt.as_float: "float", rt.as_bool: "bool"}
_TYPES[rt.as_text] = "str"


class Signature(plain.Signature):
    """A plan class as torch sees it."""

    @cached_property
    def schema(self) -> str:
        """The schema as torch.library takes it."""
        keywords = [*self._fields(), *(f"ScalarType? {keyword}=None" for keyword in self.chosen)]
        if self.takes_element:
            keywords.append("ScalarType? element=None")
        if self.takes_device:
            keywords.append("Device? device=None")
        arguments = [*self._tensors(), *(["*", *keywords] if keywords else [])]
        returned = ", ".join(f"Tensor {a.name}" for a in self.outputs)
        return f"{self.name}({', '.join(arguments)}) -> ({returned})"

    def _tensors(self) -> Iterator[str]:
        last = max((i for i, a in enumerate(self.inputs) if not a.optional), default=-1)
        for i, argument in enumerate(self.inputs):
            mark = "?" if argument.optional else f"({chr(ord('a') + i)}!)" if argument.written else ""
            default = "=None" if argument.optional and i > last else ""
            yield f"Tensor{mark} {argument.name}{default}"

    def _fields(self) -> Iterator[str]:
        declared: dict[str, Field[Any]] = {f.name: f for f in fields(self.plan.DESCRIPTOR)}
        for name in self.parameters:
            kind = _TYPES[self.plan.DESCRIPTOR._types[name]]
            if name in self.defaults:
                yield f"{kind} {name}={float(self.defaults[name]) if kind == 'float' else self.defaults[name]!r}"
            else:  # or that of another field, or what an optional input shows
                required = declared[name].default is MISSING and name not in self._sometimes
                yield f"{kind} {name}" if required else f"{kind}? {name}=None"

    @cached_property
    def takes_device(self) -> bool:
        """Whether the device is a keyword, because no input is required; never instead of a field of this name."""
        return all(a.optional for a in self.inputs) and "device" not in self.plan.DESCRIPTOR._types

    def element_of(self, tensors: plain.Tensors, keywords: plain.Keywords) -> rt.ElementKind:
        types = {name: tensors[name].dtype for name in self.typed if tensors[name] is not None}
        return self.element(types, keywords.get("element"), kind_of)

    def dtypes(self, element: rt.ElementKind, keywords: plain.Keywords) -> dict[str, Any]:
        """The torch.dtype of each output: the requested one or the default."""
        usual = {a.name: dtype_of(a.elements(element)[0]) for a in self.outputs}
        return usual | {a.name: keywords[keyword] for keyword, a in self.chosen.items() if keywords.get(keyword)}
