"""A forward op's derivative: a call of the op whose spec says that it is the forward's gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import torch

import baracuda.runtime as rt

from .dtypes import dtype_of
from .signature import Signature


@dataclass(frozen=True)
class Derivative:
    """What autograd keeps of a call, and how it goes back. Tensors that are called alike in both ops are the same."""

    forward: Signature
    backward: Signature
    call: Any  # the backward op

    @cached_property
    def _cotangents(self) -> Mapping[str, str]:
        assert self.backward.plan.GRADIENT is not None
        return self.backward.plan.GRADIENT.cotangents

    @cached_property
    def _wrt(self) -> Mapping[str, str]:
        assert self.backward.plan.GRADIENT is not None
        return self.backward.plan.GRADIENT.wrt

    @cached_property
    def _places(self) -> dict[str, int]:
        """The position of each input of the forward."""
        return {a.name: i for i, a in enumerate(self.forward.inputs)}

    @cached_property
    def _kept(self) -> tuple[str, ...]:
        """Tensors of the forward that the backward reads."""
        return tuple(a.name for a in self.backward.inputs if a.name not in self._cotangents)

    def keep(
        self, ctx: Any, inputs: Sequence[Any], output: Any, keyword_only_inputs: Mapping[str, Any] | None = None
    ) -> None:
        """Save on `ctx` what `go_back` needs."""
        tensors = self.forward.named(inputs)
        self._check(ctx, tensors)
        outputs = dict(zip((a.name for a in self.forward.outputs), self._listed(output), strict=True))
        ctx.fields = self.forward.fields(tensors, keyword_only_inputs or {})
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(outputs[a.name] for a in self.forward.outputs if self._is_constant(ctx, a)))
        ctx.save_for_backward(*((tensors | outputs)[name] for name in self._kept))
        ctx.like = {n: (t.shape, t.dtype) for n, t in (tensors | outputs).items() if t is not None}
        ctx.device = next(iter(tensors.values())).device
        ctx.element = self.forward.element(tensors)

    def go_back(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Gradients with respect to the forward's inputs."""
        given = dict(zip((a.name for a in self.forward.outputs), grads, strict=True))
        saved = dict(zip(self._kept, ctx.saved_tensors, strict=True))
        arrays = [
            self._cotangent(ctx, given, a.name, bool(a.optional)) if a.name in self._cotangents else saved[a.name]
            for a in self.backward.inputs
        ]
        found = self._listed(self.call(*arrays, **self._keywords(ctx)))
        named = dict(zip((self._wrt[a.name] for a in self.backward.outputs), found, strict=True))
        wanted = zip(self.forward.inputs, ctx.needs_input_grad, strict=False)  # fewer, if the last are left out
        return tuple(self._shaped(ctx, a.name, named[a.name]) if needed else None for a, needed in wanted)

    def _check(self, ctx: Any, tensors: Mapping[str, Any]) -> None:
        for name, needed in zip(tensors, ctx.needs_input_grad, strict=False):
            if needed and name not in self._wrt.values():
                refuse(f"{self.forward.name} has no gradient with respect to {name!r}; detach it")

    def _is_constant(self, ctx: Any, output: rt.Argument) -> bool:
        """Whether no gradient comes from `output`: the backward takes none, or it was not wanted."""
        unwanted = output.optional and not ctx.fields.get(output.optional)
        return bool(unwanted) or output.name not in self._cotangents.values()

    def _cotangent(self, ctx: Any, given: Mapping[str, Any], name: str, optional: bool) -> Any:
        output = self._cotangents[name]
        if given[output] is None and not optional:
            shape, dtype = ctx.like[output]
            return torch.zeros(shape, dtype=dtype, device=ctx.device)
        return given[output]

    def _keywords(self, ctx: Any) -> dict[str, Any]:
        """Fields of the same name as the forward's; of outputs, whether they are wanted and of which type."""
        wanted: dict[str, bool] = {}
        for a in self.backward.outputs:
            needed = self._needed(ctx, self._wrt[a.name])
            wanted[a.optional] = wanted.get(a.optional, False) or needed
        fields = ctx.fields | wanted
        keywords = {name: fields[name] for name in self.backward.parameters if name in fields}
        for keyword, argument in self.backward.chosen.items():
            _, dtype = ctx.like.get(self._wrt[argument.name], (None, None))
            if dtype in map(dtype_of, argument.elements(ctx.element)):
                keywords[keyword] = dtype
        return keywords

    def _needed(self, ctx: Any, name: str) -> bool:
        place = self._places[name]
        return place < len(ctx.needs_input_grad) and bool(ctx.needs_input_grad[place])

    def _shaped(self, ctx: Any, name: str, gradient: Any) -> Any:
        """A gradient with a value for each column, in the shape that the input has."""
        shape, _ = ctx.like[name]
        return gradient if gradient.dim() == len(shape) else gradient.reshape(shape)

    @staticmethod
    def _listed(output: Any) -> Sequence[Any]:
        return (output,) if isinstance(output, torch.Tensor) else output


def refuse(reason: str) -> NoReturn:
    """Raise what torch raises for a formula that there is none of."""
    raise NotImplementedError(reason)
