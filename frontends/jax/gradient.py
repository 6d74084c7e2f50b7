"""The derivative of a forward op: a call of the op whose spec declares itself the forward's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ..wiring import Wiring
from .call import Call

Bind = Callable[..., Any]  # takes a Call and its arrays, gives a list of arrays


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Context:
    """What a backward needs to know besides arrays: which gradients are requested, and their types."""

    requested: frozenset[str]
    like: tuple[tuple[str, tuple[int, ...], Any], ...]  # of each input: name, shape and dtype


def differentiable(wiring: Wiring, forward: Bind, backward: Callable[..., Any]) -> Bind:
    """`forward` with its derivative; `backward` takes arrays and keywords by name and returns gradients by name."""
    name = wiring.forward.name

    def keep(call: Call, *primals: Any) -> Any:
        inputs = dict(zip(call.present, primals, strict=True))
        varied = {n: p.value.dtype for n, p in inputs.items() if p.perturbed}
        requested = frozenset(n for n, dtype in varied.items() if jnp.issubdtype(dtype, jnp.inexact))
        if constant := sorted(requested - wiring.differentiable):
            reason = f"{name} has no gradient with respect to {constant[0]!r}"
            raise NotImplementedError(f"{reason}; pass it what jax.lax.stop_gradient gives")
        results = function(call, *(p.value for p in primals))  # itself, so that a second derivative meets the backward
        arrays = {n: p.value for n, p in inputs.items()} | dict(zip(call.names, results, strict=True))
        like = tuple((n, p.value.shape, p.value.dtype) for n, p in inputs.items())
        return results, (_Context(requested, like), {n: arrays[n] for n in wiring.saved if n in arrays})

    def go_back(call: Call, residuals: tuple[_Context, dict[str, Any]], cotangents: Sequence[Any]) -> Any:
        context, saved = residuals
        by_output = dict(zip(call.names, cotangents, strict=True))
        incoming = {n: _array(by_output.get(o), n in optional) for n, o in wiring.cotangents.items()}
        incoming = {name: _conjugate(array) for name, array in incoming.items()}
        gradients = backward(**saved, **incoming, **_keywords(wiring, call, context))
        named = {of: _conjugate(gradients[a.name]) for of, a in wiring.wrt if a.name in gradients}
        return tuple(named[n].reshape(s).astype(d) if n in context.requested else None for n, s, d in context.like)

    optional = {a.name for a in wiring.backward.inputs if a.optional}
    function: Any = jax.custom_vjp(forward, nondiff_argnums=(0,))
    function.defvjp(keep, go_back, symbolic_zeros=True)
    return cast(Bind, function)


def _array(cotangent: Any, optional: bool) -> Any:
    """A cotangent for the backward; None for zeros that it can do without."""
    if not isinstance(cotangent, SymbolicZero):
        return cotangent
    return None if optional else jnp.zeros(cotangent.shape, cotangent.dtype)


def _conjugate(array: Any) -> Any:
    """A complex gradient in JAX's convention from one in torch's, or the other way; a real one is the same in both."""
    return jnp.conj(array) if array is not None and jnp.iscomplexobj(array) else array


def _keywords(wiring: Wiring, call: Call, context: _Context) -> dict[str, Any]:
    element = call.element
    fields = {name: getattr(call.descriptor, name) for name in call.descriptor._types} | {"element": element}
    dtypes = {name: dtype for name, _, dtype in context.like}
    requested = context.requested
    return wiring.keywords(fields, requested, dtypes, lambda a: [kind.row.numpy for kind in a.elements(element)])
