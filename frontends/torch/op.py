"""An op's implementations: the real one, on a GPU or the host device, and the fake one for tracing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import baracuda.runtime as rt
from baracuda.ops import signature as plain

from .memory import empty, fitting, order_of
from .signature import Signature

_REMEMBERED = 1024  # calls of which an op keeps the plan
_DETERMINISTIC = rt.PlanPreference(rungs=frozenset({"deterministic"}))
_ABSENT = (0,)  # torch has no output that may be absent

Spec = tuple[Sequence[Any], Any, bool]  # of an output: shape, dtype, and whether it is wanted


@dataclass(frozen=True, slots=True)
class Made:
    """A plan and its outputs."""

    plan: Any
    outputs: tuple[Spec, ...]
    workspace_bytes: int


class Op:
    """A plan class as functions of tensors."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._names = tuple(a.name for a in (*signature.inputs, *signature.outputs))
        inputs = tuple(enumerate(signature.inputs))
        self._laid_out = tuple((i, a.layout) for i, a in inputs if a.layout != "any" and not a.written)
        self._written = tuple(i for i, a in inputs if a.written)
        self._made: dict[Any, Made] = {}

    def compute(self, *given_tensors: Any, **given: Any) -> Any:
        """Allocate the outputs and run the plan on the current stream."""
        tensors = self._fitted(given_tensors)
        made = self._plan(tensors, given)
        first, scratch = tensors[0], made.workspace_bytes
        outputs = self._allocated(made.outputs, first)
        workspace = torch.empty(scratch, dtype=torch.uint8, device=first.device) if scratch else None
        wanted = [array if spec[2] else None for array, spec in zip(outputs, made.outputs, strict=True)]
        made.plan.run(**dict(zip(self._names, (*tensors, *wanted), strict=True)), workspace=workspace)
        for place in self._written:  # so that autograd notices if it still needs what was there
            torch.autograd.graph.increment_version(tensors[place])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def trace(self, *given_tensors: Any, **given: Any) -> Any:
        """The outputs without data, for symbolic extents too."""
        tensors = self._fitted(given_tensors)
        if len(places := {str(t.device) for t in tensors if t is not None}) > 1:
            raise rt.InvalidProblem(f"{self.signature.name}: tensors are on {sorted(places)}; move them to one device")
        named = self.signature.named(tensors)
        element, fields = self.signature.element(named), self.signature.fields(named, given)
        descriptor = self.signature.plan.DESCRIPTOR.unchecked(element=element, **fields)
        outputs = self._allocated(tuple(self._specs(descriptor, given)), tensors[0])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _fitted(self, given: tuple[Any, ...]) -> Sequence[Any]:
        """All inputs, including those that torch leaves out, in a layout that the kernels can read."""
        missing = len(self.signature.inputs) - len(given)
        if not missing and not self._laid_out:
            return given
        tensors = [*given, *[None] * missing]
        for place, layout in self._laid_out:
            tensors[place] = fitting(tensors[place], layout)
        return tensors

    @staticmethod
    def _allocated(specs: tuple[Spec, ...], first: Any) -> list[Any]:
        order, device = order_of(first), first.device
        return [empty(shape, order, dtype, device) for shape, dtype, _ in specs]

    def _specs(self, descriptor: Any, given: plain.Given) -> Iterator[Spec]:
        shapes = self.signature.plan.shapes_of(descriptor)
        dtypes = self.signature.dtypes(descriptor.element, given)
        for argument in self.signature.outputs:
            there = not argument.optional or bool(getattr(descriptor, argument.optional))
            yield shapes[argument.name][0] if there else _ABSENT, dtypes[argument.name], there

    def _plan(self, tensors: Sequence[Any], given: plain.Given) -> Made:
        seen = [None if t is None else (t.shape, t.dtype) for t in tensors]
        device = tensors[0].device
        values = [(k, tuple(v) if type(v) is list else v) for k, v in given.items()]
        key = (device, torch.get_deterministic_debug_mode(), *seen, *values)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            made = self._made[key] = self._make(tensors, given, "host" if device.type == "cpu" else str(device))
        return made

    def _make(self, tensors: Sequence[Any], given: plain.Given, device: str) -> Made:
        named = self.signature.named(tensors)
        element, fields = self.signature.element(named), self.signature.fields(named, given)
        descriptor = self.signature.plan.DESCRIPTOR(element=element, **fields)  # type: ignore[call-arg]
        plan = self._selected(descriptor, device)
        return Made(plan, tuple(self._specs(descriptor, given)), plan.workspace_bytes)

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
