"""An op's implementations: the kernel itself, on a GPU or the host device, and the fake one that tracers run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import baracuda.runtime as rt

from .memory import empty, fitting, order_of
from .signature import Given, Signature, Tensors

_REMEMBERED = 1024  # calls of which an op keeps the plan
_DETERMINISTIC = rt.PlanPreference(rungs=frozenset({"deterministic"}))


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, and for each output its shape and dtype, or None where it is not wanted."""

    plan: rt.Plan[Any]
    outputs: tuple[tuple[tuple[int, ...], Any] | None, ...]


class Op:
    """A plan class as functions of tensors."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._made: dict[Any, Made] = {}

    def compute(self, *given_tensors: Any, **given: Any) -> Any:
        """Allocate the outputs and run the plan on the current stream."""
        tensors = self._fitted(given_tensors)
        made = self._plan(tensors, given)
        first = next(iter(tensors.values()))
        outputs = self._allocated(made.outputs, first)
        scratch = made.plan.workspace_bytes
        workspace = torch.empty(scratch, dtype=torch.uint8, device=first.device) if scratch else None
        wanted = (array if spec else None for array, spec in zip(outputs, made.outputs, strict=True))
        names = (argument.name for argument in self.signature.outputs)
        made.plan.run(**tensors, **dict(zip(names, wanted, strict=True)), workspace=workspace)  # type: ignore[attr-defined]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def trace(self, *given_tensors: Any, **given: Any) -> Any:
        """The same outputs with nothing in them, for extents that may be symbols."""
        tensors = self._fitted(given_tensors)
        element, fields = self.signature.element(tensors), self.signature.fields(tensors, given)
        descriptor = self.signature.plan.DESCRIPTOR.unchecked(element=element, **fields)
        outputs = self._allocated(self._specs(descriptor, element, given), next(iter(tensors.values())))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _fitted(self, given: Sequence[Any]) -> dict[str, Any]:
        arguments = self.signature.plan.ARGUMENTS
        named = self.signature.named(given)
        return {name: t if t is None else fitting(arguments[name], t) for name, t in named.items()}

    def _allocated(self, specs: Sequence[tuple[Sequence[Any], Any] | None], first: Any) -> list[Any]:
        order, absent = order_of(first), ((0,), first.dtype)  # torch has no output that may be absent
        return [empty(shape, order, dtype, first.device) for shape, dtype in (spec or absent for spec in specs)]

    def _specs(self, descriptor: Any, element: rt.ElementKind, given: Given) -> tuple[tuple[Any, Any] | None, ...]:
        shapes = self.signature.plan.shapes_of(descriptor)
        dtypes = self.signature.dtypes(element, given)
        wanted = [not a.optional or getattr(descriptor, a.optional) for a in self.signature.outputs]
        names = [a.name for a in self.signature.outputs]
        return tuple((shapes[n][0], dtypes[n]) if there else None for n, there in zip(names, wanted, strict=True))

    def _plan(self, tensors: Tensors, given: Given) -> Made:
        seen = [None if t is None else (t.shape, t.dtype) for t in tensors.values()]
        values = [(k, tuple(v) if isinstance(v, list) else v) for k, v in given.items()]
        device = next(iter(tensors.values())).device
        key = (*seen, *values, device, torch.get_deterministic_debug_mode())
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            made = self._made[key] = self._make(tensors, given, "host" if device.type == "cpu" else str(device))
        return made

    def _make(self, tensors: Tensors, given: Given, device: str) -> Made:
        element, fields = self.signature.element(tensors), self.signature.fields(tensors, given)
        descriptor = self.signature.plan.DESCRIPTOR(element=element, **fields)  # type: ignore[call-arg]
        return Made(self._selected(descriptor, device), self._specs(descriptor, element, given))

    def _selected(self, descriptor: Any, device: str) -> rt.Plan[Any]:
        plan = self.signature.plan
        if not torch.are_deterministic_algorithms_enabled():
            return plan.select(descriptor, device=device)
        try:
            return plan.select(descriptor, _DETERMINISTIC, device=device)
        except rt.Unsupported as error:
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise
            warnings.warn(f"{self.signature.name} is not deterministic: {error}", stacklevel=2)
            return plan.select(descriptor, device=device)
