"""An op's outputs according to torch, with gradients by torch's autograd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from baracuda.codegen.spec.parts import TensorSpec
from baracuda.codegen.spec.spec import OpSpec
from baracuda.runtime import ElementKind

from ..problems.problem import Arrays, Problem
from .torch_tensors import Values
from .torch_values import FORWARD, torch_module


@dataclass(frozen=True)
class Hidden:
    """Inputs of the forward that its gradient does not take, and all fields of the forward."""

    fields: Mapping[str, Any]
    arrays: Arrays


@dataclass(frozen=True)
class Expected:
    """All inputs, with saved ones rounded as stored, and real results in the form of `Problem.flat`.

    For a gradient also the forward's outputs, in the caller's shapes.
    """

    arrays: Arrays
    exact: Mapping[str, Any]
    forward: Mapping[str, Any] = field(default_factory=dict)


def values_of(spec: OpSpec) -> Values | None:
    """torch's version of an op, or for a gradient of its forward."""
    return FORWARD.get(spec.gradient.of if spec.gradient else spec.op)


def expect(problem: Problem, arrays: Arrays, hidden: Hidden, types: Mapping[str, ElementKind], device: str) -> Expected:
    """What the plan should return for `arrays`, computed by torch on `device` ("cpu", "cuda")."""
    torch = torch_module()
    values = values_of(problem.spec)
    assert values is not None
    tensors = {name: torch.from_numpy(_plain(array)).to(device) for name, array in {**arrays, **hidden.arrays}.items()}
    if problem.spec.gradient is None:
        outputs = values(torch, hidden.fields, tensors)
        returned = {argument: outputs[name] for argument, name in problem.results.items()}
        flat = {problem.results[a]: problem.flat(a, _shaped(problem, a, t)) for a, t in returned.items()}
        return Expected(arrays, flat)
    results, outputs = _gradients(torch, values, problem, hidden.fields, tensors)
    inputs, flat = dict(arrays), {}
    for name, tensor in results.items():
        array = _shaped(problem, name, tensor)
        flat[name] = problem.flat(name, array)
        if name in problem.saved:
            inputs[name] = array.astype(types[name].row.numpy)
    return Expected(inputs, flat, {name: _numbers(tensor) for name, tensor in outputs.items()})


def draw_hidden(problem: Problem, style: str, seed: int) -> Hidden:
    """What only the forward has; any value for a field that saved tensors carry, such as a mask."""
    forward = problem.forward
    if forward is None:
        return Hidden(problem.values, {})
    rng = np.random.default_rng([seed, 1])
    missing = {n: f for n, f in forward.descriptor.items() if n not in problem.values}
    fields: dict[str, Any] = {n: forward.tests.defaults.get(n, f.default) for n, f in missing.items()}
    if forward.by_hand:
        fields |= {n: bool(rng.integers(2)) for n, f in missing.items() if f.type == "bool"}
    fields |= problem.values
    arrays = {}
    for name, tensor in forward.inputs.items():
        if name in problem.spec.inputs:
            continue
        like = _gradient_of(problem, name) or _alike(problem, tensor)
        if tensor.optional and like in problem.arguments:
            fields[tensor.optional] = True
        if not tensor.optional or fields[tensor.optional]:
            arrays[name] = problem._values(rng, style, problem.shape_of(like), problem.element, name)
    return Hidden(fields, arrays)


def _gradient_of(problem: Problem, name: str) -> str:
    """The output that is the gradient of the forward's input `name`; both have the same shape."""
    gradient = problem.spec.gradient
    assert gradient is not None
    return next((grad for grad, source in gradient.wrt.items() if source == name), "")


def _alike(problem: Problem, tensor: TensorSpec) -> str:
    """An argument of the same shape as a tensor of the forward that has no gradient."""

    def shape(of: TensorSpec) -> tuple[Any, Any]:
        return getattr(of, "dims", None), getattr(of, "shape", None)

    return next(name for name in problem.arguments if shape(problem.spec.tensors[name]) == shape(tensor))


def _gradients(
    torch: Any, values: Values, problem: Problem, fields: Mapping[str, Any], tensors: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Saved values, gradients of the weighted outputs with respect to each input, and the outputs."""
    gradient, forward = problem.spec.gradient, problem.forward
    assert gradient is not None and forward is not None
    inputs = {grad: tensors[source] for grad, source in gradient.wrt.items() if grad in problem.written}
    for tensor in inputs.values():
        tensor.requires_grad_()
    outputs = values(torch, fields, {name: tensors[name] for name in forward.inputs if name in tensors})
    cotangents = {output: tensors[grad] for grad, output in gradient.cotangents.items() if grad in tensors}
    saved = {name: outputs[name] if name in outputs else tensors[name] for name in gradient.saved}
    detached = {name: tensor.detach() for name, tensor in saved.items() if name in problem.arguments}
    reached = [(outputs[n], g.reshape(outputs[n].shape)) for n, g in cotangents.items() if outputs[n].requires_grad]
    if not reached:
        return detached | {name: torch.zeros_like(x) for name, x in inputs.items()}, outputs
    of, slopes = zip(*reached, strict=True)
    grads = torch.autograd.grad(of, [*inputs.values()], slopes, allow_unused=True, materialize_grads=True)
    return detached | dict(zip(inputs, grads, strict=True)), outputs


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Inputs for torch: reals and complex numbers in its widest types, exact ones unchanged; contiguous, for not all of
    torch minds strides.
    """
    wide: Any = {"c": np.complex128}.get(array.dtype.kind, np.float64)
    return np.array(array if array.dtype.kind in "iub" else array.astype(wide), order="C")


def _shaped(problem: Problem, name: str, tensor: Any) -> np.ndarray[Any, Any]:
    return _numbers(tensor).reshape(problem.shape_of(name))


def _numbers(tensor: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = tensor.detach().resolve_conj().cpu().numpy()
    return array
