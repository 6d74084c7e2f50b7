"""An op as a function of arrays of any library that `baracuda.runtime.view` reads."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import baracuda.runtime as rt
from baracuda.runtime.element import BY_NUMPY

from .memory import Allocate, allocator
from .signature import Signature
from .usual import USUAL

_REMEMBERED = 1024  # calls of which a function keeps the plan

Views = Mapping[str, rt.TensorView]


@dataclass(frozen=True, slots=True)
class _Made:
    plan: Any
    outputs: tuple[tuple[str, tuple[int, ...], rt.ElementKind], ...]  # those that are wanted
    workspace_bytes: int


class Function:
    """A plan class as a function: it allocates what it returns, and keeps the plans that it found.

    Inputs come by position, in the plan's order, or by name; those that are optional may be None or left out. Further
    keywords:

    - fields of the descriptor that the inputs do not show; `USUAL` has what those of some names are when left out.
    - an output by its name: an array to write to, which is returned. Others are allocated by the first input's
      library, on its device: by torch or CuPy, by NumPy on the host, by CuPy for an array of another library.
    - `<output>_dtype`: the type of an output, where the caller may choose: an element's tag, or a NumPy dtype.
    - `stream`: None for the one that is current in the inputs' library, a raw handle, or an object with one.

    Returns the only output, or a named tuple of those that there are. Inputs that a plan changes, as a convolution's
    state, are changed in place. Raises what the plan raises: `InvalidProblem`, `Unsupported` and the others.
    """

    def __init__(self, plan: type[rt.Plan[Any]]) -> None:
        self.signature = Signature(plan)
        self.__name__ = plan.OP
        self.__doc__ = f"{plan.__doc__ or plan.__name__}\n\n{Function.__doc__}"
        self._inputs = tuple(a.name for a in self.signature.inputs)
        self._outputs = tuple(a.name for a in self.signature.outputs)
        known = {*self._inputs, *self._outputs, *self.signature.parameters, *self.signature.chosen}
        self._known = dict.fromkeys(sorted(known))
        self._made: dict[Any, _Made] = {}
        self._results: dict[tuple[str, ...], Any] = {}

    def __repr__(self) -> str:
        return f"<op {self.__name__}({', '.join(self._inputs)}) -> {', '.join(self._outputs)}>"

    def __call__(self, *inputs: Any, stream: Any = None, **given: Any) -> Any:
        arrays, fields = self._sorted(inputs, given)
        views = {name: rt.view(a, name) for name, a in arrays.items() if a is not None and name in self._inputs}
        first = next((name for name in self._inputs if name in views), None)
        if first is None:
            raise rt.InvalidProblem(f"{self.__name__} takes {', '.join(self._inputs)}; got no array")
        made = self._plan(views, fields, views[first].device)
        allocate = allocator(arrays[first], views[first].device)
        outputs = {n: self._given_or_new(arrays.get(n), allocate, shape, kind) for n, shape, kind in made.outputs}
        scratch = made.workspace_bytes
        workspace = allocate((scratch,), rt.ElementKind.U8) if scratch else None
        made.plan.run(**{**arrays, **outputs}, workspace=workspace, stream=stream)
        return next(iter(outputs.values())) if len(outputs) == 1 else self._result(tuple(outputs))(*outputs.values())

    def _sorted(self, inputs: Sequence[Any], given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A call's arrays by name, and its other keywords."""
        if len(inputs) > len(self._inputs):
            raise rt.InvalidProblem(f"{self.__name__} takes {', '.join(self._inputs)}; got {len(inputs)} arrays")
        arrays = dict(zip(self._inputs, inputs, strict=False))
        fields: dict[str, Any] = {}
        for name, value in given.items():
            if name not in self._known:
                raise rt.InvalidProblem(f"{self.__name__} takes no {name!r}; it takes {', '.join(self._known)}")
            if name in arrays:
                raise rt.InvalidProblem(f"{self.__name__} got {name!r} by position and by name")
            is_array = name in self._inputs or name in self._outputs
            (arrays if is_array else fields)[name] = value
        return arrays, fields

    @staticmethod
    def _given_or_new(given: Any, allocate: Allocate, shape: Sequence[int], kind: rt.ElementKind) -> Any:
        return allocate(shape, kind) if given is None else given

    def _plan(self, views: Views, fields: Mapping[str, Any], device: str) -> _Made:
        seen = [(name, v.shape, v.element) for name, v in views.items()]
        key = (device, *seen, *[(k, tuple(v) if isinstance(v, list) else v) for k, v in fields.items()])
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            made = self._made[key] = self._make(views, fields, device)
        return made

    def _make(self, views: Views, given: Mapping[str, Any], device: str) -> _Made:
        tensors = {name: views.get(name) for name in self._inputs}
        typed = self.signature.typed.name
        if (there := tensors[typed]) is None:
            raise rt.InvalidProblem(f"{self.__name__} takes {', '.join(self._inputs)}; got no {typed!r}")
        fields = self.signature.fields(tensors, given)
        needed = [name for name in self.signature.needed if name not in fields]
        for name in needed:
            if name not in USUAL:
                raise rt.InvalidProblem(f"{self.__name__} takes {', '.join(needed)} as well; pass {name}=")
            fields[name] = USUAL[name](fields)
        descriptor = self.signature.plan.DESCRIPTOR(element=there.element, **fields)  # type: ignore[call-arg]
        plan = self.signature.plan.select(descriptor, device=device)
        return _Made(plan, tuple(self._specs(plan, given)), plan.workspace_bytes)

    def _specs(self, plan: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...], rt.ElementKind]]:
        for name in self._outputs:
            if plan.present(name):
                chosen = given.get(f"{name}_dtype")
                usual = plan.elements_of(name)[0]
                yield name, plan.shapes()[name][0], usual if chosen is None else _element(chosen)

    def _result(self, names: tuple[str, ...]) -> Any:
        if names not in self._results:
            self._results[names] = namedtuple(self.__name__, names)
        return self._results[names]


def _element(dtype: Any) -> rt.ElementKind:
    if isinstance(dtype, str) and dtype in rt.ElementKind.__members__.values():
        return rt.ElementKind(dtype)
    try:
        return BY_NUMPY[np.dtype(dtype)]
    except (KeyError, TypeError):
        tags = ", ".join(rt.ElementKind)
        raise rt.Unsupported(f"no element type {dtype!r}; pass one of {tags}, or a NumPy dtype of one") from None
