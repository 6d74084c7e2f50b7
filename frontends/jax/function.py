"""An op as a function of jax arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from baracuda.ops.call import Caller, element_of
from baracuda.ops.signature import Signature

from ..wiring import Wiring
from .call import Call
from .gradient import differentiable
from .primitive import primitive_of


class Function(Caller):
    """A plan class as a function of jax arrays, for `jax.jit`, `jax.grad` and `jax.vmap`.

    Inputs come by position, in the plan's order, or by name; those that are optional may be None or left out. Further
    keywords, none of which may be traced:

    - fields of the descriptor that the inputs do not show; those that `baracuda.ops` knows may be left out.
    - `element`, where no required input shows the element type: an element's tag, or a dtype.
    - `<output>_dtype`: the type of an output, where the caller may choose: an element's tag, or a dtype.

    Returns the only output, or a named tuple of those that there are. An input that a plan changes, as a convolution's
    state, is left as it is, and what it becomes is the last output. Raises what the plan raises, when the program is
    traced or compiled: `InvalidProblem`, `Unsupported` and the others; and NotImplementedError for gradients that there
    are none of.
    """

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature, tuple(a.name for a in signature.inputs))
        self.__doc__ = f"{signature.plan.__doc__ or self.__name__}\n\n{Function.__doc__}"
        self._primitive = primitive_of(self.__name__)
        self._run = self._bind

    def derive(self, wiring: Wiring, backward: Function) -> None:
        """Compute gradients with `backward`, as `wiring` says."""
        self._run = differentiable(wiring, self._bind, backward.named)

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        return self._result(self.named(*inputs, **keywords))

    def named(self, *inputs: Any, **keywords: Any) -> dict[str, Any]:
        """A call's outputs by name."""
        arrays, fields = self._sorted(inputs, keywords)
        present = {name: jnp.asarray(arrays[name]) for name in self._inputs if arrays.get(name) is not None}
        call = self._call(present, fields)
        return dict(zip(call.names, self._run(call, *_varying_alike(tuple(present.values()))), strict=True))

    def _bind(self, call: Call, *arrays: Any) -> Any:
        return _varying_alike(self._primitive.bind(*arrays, call=call), arrays)

    def _call(self, arrays: Mapping[str, Any], fields: Mapping[str, Any]) -> Call:
        self._check_given(arrays)
        types = {name: array.dtype for name, array in arrays.items()}
        element = self.signature.element(types, fields.get("element"), lambda dtype: element_of(dtype, "element"))
        descriptor = self._descriptor(arrays, element, fields)
        outputs = [(name, kind) for name, _, kind in self._present_outputs(descriptor, fields)]
        changed = [(a.name, element_of(arrays[a.name].dtype)) for a in self.signature.inputs if a.written]
        return Call(self.signature.plan, descriptor, tuple(arrays), (*outputs, *changed))


def _varying_alike(arrays: Sequence[Any], others: Sequence[Any] = ()) -> list[Any]:
    """`arrays`, marked as varying over every mesh axis that one of them or of `others` varies over in a shard_map."""
    axes = frozenset[Any]().union(*(jax.typeof(a).mat.varying for a in (*arrays, *others)))
    return [jax.lax.pcast(a, tuple(axes - jax.typeof(a).mat.varying), to="varying") for a in arrays]
