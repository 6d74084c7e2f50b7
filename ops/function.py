"""An op as a function of arrays of any library that `baracuda.runtime.view` reads."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import baracuda.runtime as rt
from baracuda.runtime.arrays.tensor import by_ancestry
from baracuda.runtime.devices.named import default_device
from baracuda.runtime.families.list.intake import one_by_one

from .call import Caller, Output, element_of
from .memory import Allocate, allocator
from .signature import Signature

_REMEMBERED = 1024  # calls of which a function keeps the plan

Views = Mapping[str, rt.TensorView]


class _Prepared(NamedTuple):
    plan: Any
    outputs: tuple[Output, ...]  # those that are wanted
    workspace_bytes: int


class Function(Caller):
    """A plan class as a function: it allocates what it returns, and keeps the plans that it found.

    Inputs come by position, in the plan's order, or by name; those that are optional may be None or left out. Further
    keywords:

    - fields of the descriptor that the inputs do not show; `USUAL` has what those of some names are when left out.
    - `element`, where no required input shows the element type: an element's tag, or a NumPy dtype.
    - an output by its name: an array to write to, which is returned. Others are allocated by the first array's
      library, on its device: by torch or CuPy, by NumPy on the host, by CuPy for an array of another library. A call
      without arrays runs on the first GPU, or on the host device if there is none.
    - `<output>_dtype`: the type of an output, where the caller may choose: an element's tag, or a NumPy dtype.
    - `stream`: None for the one that is current in the inputs' library, a raw handle, or an object with one.

    Returns the only output, or a named tuple of those that there are. Inputs that a plan changes, as a convolution's
    state, are changed in place. Raises what the plan raises: `InvalidProblem`, `Unsupported` and the others, and
    Unsupported for tensors of torch that require a gradient, which `baracuda.frontends.torch` records.
    """

    def __init__(self, plan: type[rt.Plan[Any]]) -> None:
        super().__init__(Signature(plan), tuple(plan.ARGUMENTS))
        run = inspect.getdoc(plan.run)  # type: ignore[attr-defined]
        self.__doc__ = f"{inspect.getdoc(plan)}\n\n{inspect.getdoc(Function)}\n\nIts plan's `run`: {run}"
        self._prepared: dict[Any, _Prepared] = {}

    @property
    def __signature__(self) -> inspect.Signature:
        return self.signature.python

    def __reduce__(self) -> tuple[Any, ...]:
        return Function, (self.signature.plan,)

    def __call__(self, *inputs: Any, stream: Any = None, **keywords: Any) -> Any:
        arrays, others = self._sorted(inputs, keywords)
        fields = {name: self._taken(name, value) for name, value in others.items() if value is not None}
        viewed = self.signature.plan.viewed
        views = {name: viewed(a, name) for name, a in arrays.items() if a is not None and name in self._inputs}
        self._check_given(views)
        self._refuse_gradients(arrays)
        like, device = self._place(arrays, views)
        prepared = self._plan(views, fields, device)
        allocate = allocator(next(one_by_one(like)), device)
        outputs = {o[0]: self._passed_or_new(arrays.get(o[0]), allocate, like, o) for o in prepared.outputs}
        scratch = prepared.workspace_bytes
        workspace = allocate((scratch,), rt.ElementKind.U8) if scratch else None
        prepared.plan.run(**{**arrays, **outputs}, workspace=workspace, stream=stream)
        return self._result(outputs)

    def _place(self, arrays: Mapping[str, Any], views: Views) -> tuple[Any, str]:
        """The first array, inputs before outputs, and its device; None and the default device if there is no array."""
        for name in self._inputs:
            if name in views:
                return arrays[name], views[name].device
        for name in self._outputs:
            if (array := arrays.get(name)) is not None:
                return array, self.signature.plan.viewed(array, name).device
        return None, default_device().name

    def _refuse_gradients(self, arrays: Mapping[str, Any]) -> None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.is_grad_enabled():
            return
        for name, array in [(name, one) for name, argument in arrays.items() for one in one_by_one(argument)]:
            if by_ancestry(type(array), {"torch.Tensor": True}) and array.requires_grad:
                message = f"{self.__name__}: {name!r} requires a gradient, which functions do not record"
                raise rt.Unsupported(f"{message}; use baracuda.frontends.torch, or torch.no_grad()")

    def _taken(self, name: str, value: Any) -> Any:
        """A keyword's value in its canonical type."""
        convert = self.signature.plan.DESCRIPTOR._types.get(name)
        return element_of(value, name) if convert is None else convert(name, value)

    def _passed_or_new(self, array: Any, allocate: Allocate, like: Any, output: Output) -> Any:
        name, shape, kind = output
        of_list = self.signature.plan.ARGUMENTS[name].over == "list"
        if array is None and of_list and isinstance(like, list | tuple):
            return [allocate(item.shape, kind) for item in like]
        return allocate(shape, kind) if array is None else array

    def _plan(self, views: Views, fields: Mapping[str, Any], device: str) -> _Prepared:
        view_types = [(name, v.shape, v.element) for name, v in views.items()]
        key = (device, *view_types, *fields.items())
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= _REMEMBERED:
                self._prepared.clear()
            prepared = self._prepared[key] = self._make(views, fields, device)
        return prepared

    def _make(self, views: Views, keywords: Mapping[str, Any], device: str) -> _Prepared:
        types = {name: v.element for name, v in views.items()}
        element = self.signature.element(types, keywords.get("element"), rt.ElementKind)
        descriptor = self._descriptor(views, element, keywords)
        plan = self.signature.plan.select(descriptor, device=device)
        return _Prepared(plan, tuple(self._present_outputs(descriptor, keywords)), plan.workspace_bytes)
