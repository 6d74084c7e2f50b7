"""The derivative of a forward op: a call of the op whose spec declares itself the forward's gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import torch

import baracuda.runtime as rt

from ..wiring import Wiring
from .dtypes import dtype_of, kind_of


class Derivative:
    """What autograd saves of a call, and the backward call."""

    def __init__(self, wiring: Wiring, call: Any) -> None:
        forward, backward = wiring.forward, wiring.backward
        self._name, self._call, self._forward, self._wiring = forward.name, call, forward, wiring
        self._names = [a.name for a in forward.inputs]
        self._outputs = [a.name for a in forward.outputs]
        self._constant = [(i, n) for i, n in enumerate(self._names) if n not in wiring.differentiable]
        self._inputs = backward.inputs
        # Fields of the backward that the forward's inputs determine.
        self._inferred = {e.field for e in forward.plan.EXTENTS}.intersection(backward.parameters)

    def keep(
        self, ctx: Any, needed: Sequence[bool], inputs: Sequence[Any], keywords: Mapping[str, Any], out: Any
    ) -> None:
        """Save on `ctx` what `go_back` needs."""
        for index, name in self._constant:
            if index < len(needed) and needed[index]:
                refuse(f"{self._name} has no gradient with respect to {name!r}; detach it")
        tensors = self._forward.named(inputs)
        outputs = dict(zip(self._outputs, listed(out), strict=True))
        ctx.fields = {**self._forward.defaults, **keywords}
        if self._inferred:
            ctx.fields |= self._forward.fields(tensors, keywords)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(outputs[a.name] for a in self._forward.outputs if self._is_constant(ctx, a)))
        tensors |= outputs
        ctx.save_for_backward(*[tensors[name] for name in self._wiring.saved])
        ctx.like = {n: (t.shape, t.dtype, t.device) for n, t in tensors.items() if t is not None}

    def go_back(self, ctx: Any, needed: Sequence[bool], grads: Sequence[Any]) -> list[Any]:
        """Gradients with respect to the forward's inputs."""
        arrays = dict(zip(self._wiring.saved, ctx.saved_tensors, strict=True))
        by_output = dict(zip(self._outputs, grads, strict=True))
        for name, output in self._wiring.cotangents.items():
            arrays[name] = by_output[output]
        for argument in self._inputs:
            if arrays[argument.name] is None and not argument.optional:
                shape, dtype, device = ctx.like[self._wiring.cotangents[argument.name]]
                arrays[argument.name] = torch.zeros(shape, dtype=dtype, device=device)
        # The last inputs may be left out.
        requested = [name for name, is_needed in zip(self._names, needed, strict=False) if is_needed]
        gradients = listed(self._call(*[arrays[a.name] for a in self._inputs], **self._keywords(ctx, requested)))
        named = {name: gradient for (name, _), gradient in zip(self._wiring.wrt, gradients, strict=True)}
        names = self._names[: len(needed)]
        return [_shaped(named[name], ctx.like[name][0]) if name in requested else None for name in names]

    def _is_constant(self, ctx: Any, output: rt.Argument) -> bool:
        """Whether `output` has no gradient: the backward takes none, or it was not requested."""
        unwanted = output.optional and not ctx.fields.get(output.optional)
        return bool(unwanted) or output.name not in self._wiring.cotangents.values()

    def _keywords(self, ctx: Any, requested: Sequence[str]) -> dict[str, Any]:
        dtypes = {name: dtype for name, (_, dtype, _) in ctx.like.items()}
        element = self._forward.element(dtypes, ctx.fields.get("element"), kind_of)
        fields = {**ctx.fields, "element": dtype_of(element)}
        return self._wiring.keywords(fields, requested, dtypes, lambda argument: _dtypes(argument, element))


@lru_cache(maxsize=1024)
def _dtypes(argument: rt.Argument, element: rt.ElementKind) -> tuple[Any, ...]:
    """The dtypes that `argument` may have."""
    return tuple(map(dtype_of, argument.elements(element)))


def _shaped(gradient: Any, shape: Any) -> Any:
    """A per-column gradient in the input's shape."""
    return gradient if gradient.dim() == len(shape) else gradient.reshape(shape)


def listed(output: Any) -> Sequence[Any]:
    """An op's outputs as a list; torch passes a single one by itself."""
    return (output,) if isinstance(output, torch.Tensor) else output


def refuse(reason: str) -> NoReturn:
    """Raise what torch raises for a missing derivative formula."""
    raise NotImplementedError(reason)
