"""How a function call becomes a descriptor, for any library's arrays."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

import baracuda.runtime as rt
from baracuda.runtime.arrays.element import BY_NUMPY
from baracuda.runtime.values import near, short_repr, text_of

from .signature import Signature

Output = tuple[str, tuple[int, ...], rt.ElementKind]  # its name, shape and element


class Caller:
    """An op that takes arrays by position or name, and keywords. Some or all `arrays` may be given."""

    def __init__(self, signature: Signature, arrays: Sequence[str]) -> None:
        self.signature = signature
        self.__name__ = signature.name
        self._inputs = tuple(a.name for a in signature.inputs)
        self._outputs = tuple(a.name for a in signature.outputs)
        self._arrays = frozenset(arrays)
        self._required = tuple(a.name for a in signature.inputs if not a.optional)
        self._shown = frozenset(e.field for e in signature.plan.EXTENTS) - {*signature.parameters}
        element = ("element",) if signature.takes_element else ()
        self._keywords = dict.fromkeys(sorted({*arrays, *signature.parameters, *element, *signature.chosen}))

    def __repr__(self) -> str:
        return f"<op {self.__name__}({', '.join(self._inputs)}) -> {', '.join(self._outputs)}>"

    def _sorted(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A call's arrays by name, and its other keywords."""
        if len(inputs) > len(self._inputs):
            raise rt.InvalidProblem(f"{self.__name__} takes {', '.join(self._inputs)}; got {len(inputs)} arrays")
        arrays = dict(zip(self._inputs, inputs, strict=False))
        fields: dict[str, Any] = {}
        for name, value in keywords.items():
            if name not in self._keywords and name not in self._shown:
                meant = near(name, self._keywords)
                hint = f"did you mean {meant!r}?" if meant else f"it takes {', '.join(self._keywords)}"
                raise rt.InvalidProblem(f"{self.__name__} takes no {name!r}; {hint}")
            if name in arrays:
                raise rt.InvalidProblem(f"{self.__name__} got {name!r} by position and by name")
            (arrays if name in self._arrays else fields)[name] = value
        return arrays, fields

    def _check_given(self, arrays: Mapping[str, Any]) -> None:
        """Refuse a call without an input that is required."""
        for name in self._required:
            if name not in arrays:
                got = f"no {name!r}" if arrays else "no array"
                raise rt.InvalidProblem(f"{self.__name__} takes {', '.join(self._inputs)}; got {got}")

    def _descriptor(self, arrays: Mapping[str, Any], element: rt.ElementKind, keywords: Mapping[str, Any]) -> Any:
        """The descriptor of a call; omitted fields get their defaults."""
        fields = self.signature.fields({name: arrays.get(name) for name in self._inputs}, keywords)
        needed, usual = [name for name in self.signature.needed if name not in fields], self.signature.usual
        for name in needed:
            if name not in usual:
                raise rt.InvalidProblem(f"{self.__name__} takes {', '.join(needed)} as well; pass {name}=")
        fields |= {name: usual[name](fields) for name in needed}
        for name in self._shown & keywords.keys():
            if keywords[name] is not None and keywords[name] != fields.get(name):
                raise rt.InvalidProblem(f"{self.__name__} got {name}={keywords[name]}; arrays say {fields.get(name)}")
        return self.signature.plan.DESCRIPTOR(element=element, **fields)

    def _present_outputs(self, descriptor: Any, keywords: Mapping[str, Any]) -> Iterator[Output]:
        """The outputs that are present."""
        shapes = self.signature.plan.shapes_of(descriptor)
        for a in self.signature.outputs:
            if not a.optional or getattr(descriptor, a.optional):
                chosen = keywords.get(f"{a.name}_dtype")
                usual = a.elements(rt.ElementKind(descriptor.element))[0]
                yield a.name, shapes[a.name][0], usual if chosen is None else element_of(chosen, f"{a.name}_dtype")

    def _result(self, outputs: Mapping[str, Any]) -> Any:
        """The only output, or a named tuple; None where every result is in place."""
        if len(outputs) < 2:
            return next(iter(outputs.values()), None)
        return _named(self.__name__, *outputs)(*outputs.values())


@cache
def _named(op: str, *outputs: str) -> Any:
    """The type of an op's results; pickles find it by these names."""
    namespace = {"__slots__": (), "__reduce__": lambda self: (_result, (op, outputs, tuple(self)))}
    return type(op, (namedtuple(op, outputs),), namespace)


def _result(op: str, outputs: Sequence[str], values: Sequence[Any]) -> Any:
    return _named(op, *outputs)(*values)


def element_of(dtype: Any, name: str = "dtype") -> rt.ElementKind:
    """The element type of a tag or NumPy dtype."""
    if (tag := text_of(dtype)) is not None and tag in rt.ElementKind.__members__.values():
        return rt.ElementKind(tag)
    try:
        return BY_NUMPY[np.dtype(dtype)]
    except Exception:  # NumPy reads dtypes of many kinds of objects, and raises as many kinds of errors
        problem, tags = f"{name!r}: no element type {short_repr(dtype)}", ", ".join(rt.ElementKind)
        raise rt.Unsupported(f"{problem}; pass one of {tags}, or a NumPy dtype of one") from None
