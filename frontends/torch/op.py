"""An op's implementations: the real one, on a GPU or the host device, and the fake one for tracing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

import baracuda.runtime as rt
from baracuda.ops import signature as plain

from .memory import empty, fitting, order_of
from .signature import Signature

_REMEMBERED = 1024  # calls of which an op keeps the plan
_ANY = rt.PlanPreference()
_DETERMINISTIC = frozenset({"deterministic"})
_asked: set[rt.MathPrecision] = set()  # the math precisions that ops take where they have kernels of them
_ABSENT = (0,)  # torch has no output that may be absent

Spec = tuple[Sequence[Any], Any, bool]  # of an output: shape, dtype, and whether it is wanted


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan and its outputs."""

    plan: Any
    outputs: tuple[Spec, ...]
    workspace_bytes: int


def use_tf32(mode: bool) -> None:
    """Let matrix products of f32, and their gradients, round factors to TF32, in all threads; or no more."""
    (_asked.add if mode else _asked.discard)(rt.MathPrecision.TF32)


class Op:
    """A plan class as functions of tensors."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._names = tuple(a.name for a in (*signature.inputs, *signature.outputs))
        inputs = tuple(enumerate(signature.inputs))
        self._laid_out = tuple((i, a.layout) for i, a in inputs if a.layout != "any" and not a.written)
        self._written = tuple(i for i, a in inputs if a.written)
        self._prepared: dict[Any, Prepared] = {}

    def compute(self, *inputs: Any, **keywords: Any) -> Any:
        """Allocate the outputs and run the plan on the current stream."""
        tensors = self._fitted(inputs)
        first, device = place_of(tensors, self._device_called(keywords))
        prepared = self._plan(tensors, keywords, device)
        scratch = prepared.workspace_bytes
        outputs = self._allocated(prepared.outputs, first, device)
        workspace = torch.empty(scratch, dtype=torch.uint8, device=device) if scratch else None
        written = [array if spec[2] else None for array, spec in zip(outputs, prepared.outputs, strict=True)]
        prepared.plan.run(**dict(zip(self._names, (*tensors, *written), strict=True)), workspace=workspace)
        for index in self._written:  # so that autograd notices if it still needs what was there
            torch.autograd.graph.increment_version(tensors[index])
        return result_of(outputs)

    def trace(self, *inputs: Any, **keywords: Any) -> Any:
        """The outputs without data, for symbolic extents too."""
        tensors, device = self._fitted(inputs), self._device_called(keywords)
        if len(places := {str(t.device) for t in tensors if t is not None}) > 1:
            raise rt.InvalidProblem(f"{self.signature.name}: tensors are on {sorted(places)}; move them to one device")
        named = self.signature.named(tensors)
        element, fields = self.signature.element_of(named, keywords), self.signature.fields(named, keywords)
        descriptor = self.signature.plan.DESCRIPTOR.unchecked(element=element, **fields)
        outputs = self._allocated(tuple(self._specs(descriptor, keywords)), *place_of(tensors, device))
        return result_of(outputs)

    def _device_called(self, keywords: dict[str, Any]) -> Any:
        """Take the device that an op without required inputs runs on out of the keywords."""
        return keywords.pop("device", None) if self.signature.takes_device else None

    def _fitted(self, inputs: tuple[Any, ...]) -> Sequence[Any]:
        """All inputs, including those that torch leaves out, in a layout that the kernels can read."""
        missing = len(self.signature.inputs) - len(inputs)
        if not missing and not self._laid_out:
            return inputs
        tensors = [*inputs, *[None] * missing]
        for index, layout in self._laid_out:
            tensors[index] = fitting(tensors[index], layout)
        return tensors

    @staticmethod
    def _allocated(specs: tuple[Spec, ...], first: Any, device: Any) -> list[Any]:
        order = None if first is None else order_of(first)
        return [empty(shape, order, dtype, device) for shape, dtype, _ in specs]

    def _specs(self, descriptor: Any, keywords: plain.Keywords) -> Iterator[Spec]:
        shapes = self.signature.plan.shapes_of(descriptor)
        dtypes = self.signature.dtypes(descriptor.element, keywords)
        for argument in self.signature.outputs:
            is_present = not argument.optional or bool(getattr(descriptor, argument.optional))
            yield shapes[argument.name][0] if is_present else _ABSENT, dtypes[argument.name], is_present

    def _plan(self, tensors: Sequence[Any], keywords: plain.Keywords, device: Any) -> Prepared:
        tensor_types = [None if t is None else (t.shape, t.dtype) for t in tensors]
        values = [(k, tuple(v) if type(v) is list else v) for k, v in keywords.items()]
        key = (device, torch.get_deterministic_debug_mode(), *_asked, *tensor_types, *values)
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= _REMEMBERED:
                self._prepared.clear()
            name = "host" if device.type == "cpu" else str(device)
            prepared = self._prepared[key] = self._make(tensors, keywords, name)
        return prepared

    def _make(self, tensors: Sequence[Any], keywords: plain.Keywords, device: str) -> Prepared:
        named = self.signature.named(tensors)
        element, fields = self.signature.element_of(named, keywords), self.signature.fields(named, keywords)
        descriptor = self.signature.plan.DESCRIPTOR(element=element, **fields)
        plan = self._selected(descriptor, device)
        return Prepared(plan, tuple(self._specs(descriptor, keywords)), plan.workspace_bytes)

    def _selected(self, descriptor: Any, device: str) -> rt.Plan[Any]:
        plan, wished = self.signature.plan, self._wished(descriptor)
        if not torch.are_deterministic_algorithms_enabled():
            return plan.select(descriptor, wished, device=device)
        try:
            return plan.select(descriptor, replace(wished, rungs=_DETERMINISTIC), device=device)
        except rt.Unsupported as error:
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise
            warnings.warn(f"{self.signature.name} is not deterministic: {error}", stacklevel=2)
            return plan.select(descriptor, wished, device=device)

    def _wished(self, descriptor: Any) -> rt.PlanPreference:
        """What was asked for that some kernel of the op does."""
        maths = {row.sku.precision_guarantee.math_precision for row in self.signature.plan.kernels(descriptor.element)}
        return rt.PlanPreference(math_precision=min(_asked & maths)) if _asked & maths else _ANY


def result_of(outputs: Sequence[Any]) -> Any:
    """What torch wants of an op: nothing, a tensor or a tuple."""
    return (outputs[0] if len(outputs) == 1 else tuple(outputs)) if outputs else None


def place_of(tensors: Sequence[Any], device: Any) -> tuple[Any, Any]:
    """The first tensor and its device; without tensors None and the `device` asked for, by default torch's own."""
    first = next((t for t in tensors if t is not None), None)
    if first is not None:
        return first, first.device
    return None, torch.get_default_device() if device is None else device
