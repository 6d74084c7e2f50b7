"""A forward op's derivative: a call of the op whose spec says that it is the forward's gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import torch

import baracuda.runtime as rt

from .dtypes import dtype_of, kind_of
from .signature import Signature

Array = tuple[str, rt.Argument]  # what an output of the backward is the gradient of, and itself


class Derivative:
    """What autograd keeps of a call, and how it goes back. Tensors that are called alike in both ops are the same.

    What follows from the specs is found once: the rest is a part of the time that every call takes.
    """

    def __init__(self, forward: Signature, backward: Signature, call: Any) -> None:
        gradient = backward.plan.GRADIENT
        assert gradient is not None
        self._name, self._call, self._forward = forward.name, call, forward
        self._names = [a.name for a in forward.inputs]
        self._outputs = [a.name for a in forward.outputs]
        self._cotangents = gradient.cotangents
        self._constant = [(i, n) for i, n in enumerate(self._names) if n not in gradient.wrt.values()]
        self._inputs = backward.inputs
        self._kept = [a.name for a in backward.inputs if a.name not in gradient.cotangents]
        self._wrt = [(gradient.wrt[a.name], a) for a in backward.outputs]
        self._chosen = {keyword: (gradient.wrt[a.name], a) for keyword, a in backward.chosen.items()}
        self._parameters = backward.parameters

    @cached_property
    def _shown(self) -> set[str]:
        """What the backward is told and the forward's inputs show."""
        return {e.field for e in self._forward.plan.EXTENTS}.intersection(self._parameters)

    def keep(self, ctx: Any, needed: Sequence[bool], inputs: Sequence[Any], given: Mapping[str, Any], out: Any) -> None:
        """Save on `ctx` what `go_back` needs."""
        for place, name in self._constant:
            if place < len(needed) and needed[place]:
                refuse(f"{self._name} has no gradient with respect to {name!r}; detach it")
        tensors = self._forward.named(inputs)
        outputs = dict(zip(self._outputs, listed(out), strict=True))
        ctx.fields = {**self._forward.defaults, **given}
        if self._shown:
            ctx.fields |= self._forward.fields(tensors, given)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(outputs[a.name] for a in self._forward.outputs if self._is_constant(ctx, a)))
        tensors |= outputs
        ctx.save_for_backward(*[tensors[name] for name in self._kept])
        ctx.like = {n: (t.shape, t.dtype, t.device) for n, t in tensors.items() if t is not None}

    def go_back(self, ctx: Any, needed: Sequence[bool], grads: Sequence[Any]) -> list[Any]:
        """Gradients with respect to the forward's inputs."""
        arrays = dict(zip(self._kept, ctx.saved_tensors, strict=True))
        given = dict(zip(self._outputs, grads, strict=True))
        for name, output in self._cotangents.items():
            arrays[name] = given[output]
        for argument in self._inputs:
            if arrays[argument.name] is None and not argument.optional:
                shape, dtype, device = ctx.like[self._cotangents[argument.name]]
                arrays[argument.name] = torch.zeros(shape, dtype=dtype, device=device)
        wanted = dict(zip(self._names, needed, strict=False))  # fewer, if the last are left out
        found = listed(self._call(*[arrays[a.name] for a in self._inputs], **self._keywords(ctx, wanted)))
        named = {name: gradient for (name, _), gradient in zip(self._wrt, found, strict=True)}
        return [_shaped(named[name], ctx.like[name][0]) if needs else None for name, needs in wanted.items()]

    def _is_constant(self, ctx: Any, output: rt.Argument) -> bool:
        """Whether no gradient comes from `output`: the backward takes none, or it was not wanted."""
        unwanted = output.optional and not ctx.fields.get(output.optional)
        return bool(unwanted) or output.name not in self._cotangents.values()

    def _keywords(self, ctx: Any, wanted: Mapping[str, bool]) -> dict[str, Any]:
        """Fields of the same name as the forward's; of outputs, whether they are wanted and of which type."""
        fields = dict(ctx.fields)
        flags = {a.optional for _, a in self._wrt}
        fields |= {f: any(wanted.get(name) for name, a in self._wrt if a.optional == f) for f in flags}
        keywords = {name: fields[name] for name in self._parameters if fields.get(name) is not None}
        element = ctx.like[self._forward.typed.name][1]
        for keyword, (name, argument) in self._chosen.items():
            if name in ctx.like and (dtype := ctx.like[name][1]) in _dtypes(argument, element):
                keywords[keyword] = dtype
        return keywords


@lru_cache(maxsize=1024)
def _dtypes(argument: rt.Argument, element: Any) -> tuple[Any, ...]:
    """What `argument` may hold."""
    return tuple(map(dtype_of, argument.elements(kind_of(element))))


def _shaped(gradient: Any, shape: Any) -> Any:
    """A gradient with a value for each column, in the shape that the input has."""
    return gradient if gradient.dim() == len(shape) else gradient.reshape(shape)


def listed(output: Any) -> Sequence[Any]:
    """An op's outputs, of which torch gives one alone as it is."""
    return (output,) if isinstance(output, torch.Tensor) else output


def refuse(reason: str) -> NoReturn:
    """Raise what torch raises for a formula that there is none of."""
    raise NotImplementedError(reason)
