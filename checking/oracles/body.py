"""The oracle of ops with hand-written kernels: the definition that their spec names, or its derivative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baracuda.runtime import ElementKind, KernelSku

from .accuracy import stored
from .references import Units, definition_of
from .wide import wide_type

# Values below the accumulator's smallest normal number may become 0, and so may products with them.
_LOST = 1e6


def reference(problem: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Expected outputs by the definition, or for a gradient by differentiating the forward's; see `program_oracle`."""
    if problem.spec.gradient is None:
        return dict(_values(problem.spec)(np, problem.values, arrays))
    import autograd
    import autograd.numpy as anp

    gradient, forward = problem.spec.gradient, problem.forward
    values, fields = _values(forward), problem.forward_values
    wrt = {source: grad for grad, source in gradient.wrt.items() if source in arrays and grad in problem.written}
    cotangents = {output: arrays[grad] for grad, output in gradient.cotangents.items() if grad in arrays}

    def loss(*inputs: Any) -> Any:
        outputs = values(anp, fields, {**arrays, **dict(zip(wrt, inputs, strict=True))})
        return sum((anp.sum(outputs[output] * g) for output, g in cotangents.items()), 0.0)

    outputs = values(np, fields, arrays) if gradient.saved else {}
    results = {name: outputs[name] if name in outputs else arrays[name] for name in gradient.saved}
    if any(g.size for g in cotangents.values()):
        grads = autograd.grad(loss, tuple(range(len(wrt))))(*(arrays[name] for name in wrt))
        return results | dict(zip(wrt.values(), grads, strict=True))
    return results | {grad: np.zeros_like(arrays[source]) for source, grad in wrt.items()}


def _factors(sku: KernelSku) -> float:
    """The unit roundoff of the SKU's math precision; 0 if factors keep the accumulator's."""
    math, accumulator = sku.precision_guarantee.math_precision, sku.precision_guarantee.accumulator
    return 0.0 if math in (accumulator, "tf32x3") else ElementKind(math).row.unit_roundoff


def _values(spec: Any) -> Any:
    values = definition_of(spec).values
    assert values is not None, f"{spec.oracle} has no values"
    return values


def tolerances(
    problem: Any, arrays: Mapping[str, Any], exact: Mapping[str, Any], types: Mapping[str, ElementKind]
) -> dict[str, Any]:
    """The declared bound on each element of each output: ``c1 * u * |y| + c2 * E``, E as the definition bounds it."""
    spec, element = problem.spec, problem.element
    units = Units(element.row.acc.row.unit_roundoff, element.row.unit_roundoff, _factors(problem.plan.sku))
    slack = {}
    for name in problem.saved & exact.keys() & arrays.keys():
        with np.errstate(invalid="ignore"):
            off = np.abs(arrays[name] - exact[name])
        slack[name] = np.where(np.isnan(off), 0.0, off)
    with np.errstate(all="ignore"):
        errors = definition_of(spec).errors(problem.values, arrays, slack, units)
    noise = float(np.finfo(wide_type(element)).eps) / units.acc
    lost = _LOST * element.row.acc.row.smallest_normal
    bounds = {n: np.asarray(errors[n], np.float64) * (1 + noise) + lost for n in problem.results.values()}
    return {a: stored(exact[n], bounds[n], types[a], spec.bound_of(n, element)) for a, n in problem.results.items()}
